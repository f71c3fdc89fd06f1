torchrun --master_port=1112 --nproc_per_node=3 main_finetune.py \
--output_dir output/finetune/7b_full --epochs 4 --warmup_epochs 1 \
--batch_size 2 --accum_iter 4 --num_workers 4 \
--max_words 1024 \
--lr 0.00002 --min_lr 0.000005 --clip_grad 2 --weight_decay 0.02 \
--data_parallel sdp --model_parallel_size 1 --checkpointing \
--llama_type llama --llama_config /data/llama2/7B/params.json --tokenizer_path /data/llama2/tokenizer.model \
--no_visual --pretrained_path /data/llama2/7B \
--data_config configs/data/finetune/sg/task.yaml \
--precision fp32
