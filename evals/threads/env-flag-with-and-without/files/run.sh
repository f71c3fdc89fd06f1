CUDA_VISIBLE_DEVICES=0 llamafactory-cli train \
    --stage sft --do_train --model_name_or_path /models/Qwen3-4B \
    --dataset alpaca_gpt4_data --template qwen3 --finetuning_type lora \
    --output_dir saves/qwen3-4B/lora/sft --cutoff_len 2048 \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --save_steps 100 --eval_steps 50 \
    --evaluation_strategy steps \
    --save_strategy steps \
    --load_best_model_at_end --learning_rate 5e-5 --num_train_epochs 5.0 --val_size 0.1 --fp16
