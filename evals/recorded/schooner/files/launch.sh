#!/bin/bash
# taken over from the old cluster
export OMP_NUM_THREADS=1
export NCCL_DEBUG=WARN
export NCCL_SOCKET_IFNAME=bond0
export GLOO_SOCKET_IFNAME=bond0
export TOKENIZERS_PARALLELISM=false
echo "$(hostname): $(ls -m /sys/class/net)" > train.log
torchrun --nproc-per-node 2 --master-port 29765 train.py args.json corpus.txt >> train.log 2>&1
