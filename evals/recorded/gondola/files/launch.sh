#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node=4 --master-port 29752 --log-dir logs --redirects 3 train.py parallel.toml > launcher.log 2>&1
