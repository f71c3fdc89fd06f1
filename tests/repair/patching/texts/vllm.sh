#!/bin/bash
vllm serve /data/Llama-3-70B --tensor-parallel-size 4 --dtype float16 --gpu-memory-utilization 0.95 --port 8000
