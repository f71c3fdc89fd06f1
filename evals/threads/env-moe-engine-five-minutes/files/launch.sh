python3 train.py --colocate --rollout-num-gpus-per-engine 2 --hf-checkpoint /models/Qwen3-30B-A3B-FP8 --vllm-data-parallel-size 2 --rollout-batch-size 32 --n-samples-per-prompt 8
