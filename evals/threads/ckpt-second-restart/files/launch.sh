NGPU=4 CONFIG_FILE="torchtitan/models/llama/train_configs/debug_model.toml" ./run_train.sh --training.compile=True
