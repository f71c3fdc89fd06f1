#!/bin/bash
export VLLM_LOGGING_LEVEL=INFO
nohup vllm serve Qwen/Qwen3-32B --tensor-parallel-size 4 --max-model-len 32768 --gpu-memory-utilization 0.92 --no-enable-prefix-caching > vllm.log 2>&1 &
until curl -sf localhost:8000/health; do sleep 5; done
