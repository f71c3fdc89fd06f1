CUDA_VISIBLE_DEVICES=0 python3 ./src/train_bash.py --stage pt --do_train \
    --model_name_or_path /models/llama2-7b-ext --dataset wiki_pt \
    --finetuning_type lora --lora_target q_proj,v_proj --additional_target embed_tokens,lm_head \
    --resize_vocab True --output_dir output_dir/lora/pretrain \
    --per_device_train_batch_size 4 --learning_rate 2e-4 --num_train_epochs 1.0 --fp16
