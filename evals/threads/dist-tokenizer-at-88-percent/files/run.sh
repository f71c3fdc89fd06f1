torchrun --nproc_per_node 4 src/train_bash.py --stage sft --do_train --model_name_or_path Qwen/Qwen-7B \
  --dataset sft_mix --template chatml --finetuning_type lora --output_dir out \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --bf16
