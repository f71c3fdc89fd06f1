deepspeed --num_gpus=4 src/train_bash.py --deepspeed ds_config_zero3.json --stage sft --do_train \
    --model_name_or_path /models/Qwen-7B --dataset cls_zh --dataset_dir data/ --template qwen \
    --finetuning_type lora --lora_target c_attn --output_dir ckpt/cls --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 4 --lr_scheduler_type cosine --logging_steps 10 --learning_rate 5e-5 \
    --num_train_epochs 3.0 --plot_loss --fp16
