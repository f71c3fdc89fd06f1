bash run_train.sh --module qwen3 --config qwen3_1_7b --checkpoint.last_save_model_only=True --checkpoint.last_save_in_hf
