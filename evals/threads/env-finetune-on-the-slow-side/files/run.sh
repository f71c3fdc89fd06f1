CUDA_VISIBLE_DEVICES=0 python src/train_bash.py --stage sft --do_train --model_name_or_path /models/7b --bf16 --finetuning_type lora --output_dir out
