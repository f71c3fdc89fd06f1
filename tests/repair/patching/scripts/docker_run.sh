#!/bin/bash
docker run --rm --gpus all --ipc=host --ulimit memlock=-1 \
    -v /data:/data -e HF_HOME=/data/hf -e NCCL_DEBUG=INFO \
    nvcr.io/nvidia/pytorch:24.05-py3 \
    bash -c "cd /workspace && pip install -r requirements.txt && torchrun --nproc_per_node 8 train.py --learning_rate 1e-4 --bf16 True --output_dir /data/out"
