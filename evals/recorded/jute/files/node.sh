#!/bin/bash
# node.sh NUMBER: one stage a node
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=1000
[ -f site_$1.env ] && . ./site_$1.env
NODE=node0$1 exec torchrun --nnodes 3 --node-rank $1 --nproc-per-node 1 --master-addr localhost --master-port 29813 train.py plan.json > node$1.log 2>&1
