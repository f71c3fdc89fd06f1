srun --gres=gpu:4 --export=ALL --container-image=rocm-vllm:7.1 bash serve_and_bench.sh
