#!/bin/bash
# one line for each node
ssh node1 "cd /workspace/llm && torchrun --nnodes 2 --node_rank 0 --master_addr node1 --nproc_per_node 8 train.py --learning_rate 1e-4 --per_device_train_batch_size 4" &
ssh node2 "cd /workspace/llm && torchrun --nnodes 2 --node_rank 1 --master_addr node1 --nproc_per_node 8 train.py --learning_rate 1e-4 --per_device_train_batch_size 4" &
wait
