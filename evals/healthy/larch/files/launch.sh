#!/bin/bash
torchrun --standalone --nproc-per-node 4 --log-dir logs --tee 3 train.py --steps 150 > job.log 2>&1
