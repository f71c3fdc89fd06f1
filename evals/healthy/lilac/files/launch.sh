#!/bin/bash
torchrun --standalone --nproc-per-node 2 train.py --strategy fsdp --bf16 > train.log 2>&1
