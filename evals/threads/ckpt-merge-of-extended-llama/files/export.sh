CUDA_VISIBLE_DEVICES=0 python3 ./src/export_model.py \
    --model_name_or_path /models/llama2-7b-ext \
    --adapter_name_or_path output_dir/lora/pretrain \
    --template default --finetuning_type lora \
    --export_dir output_dir/merged_pt_model/ --export_size 2 --export_legacy_format False
