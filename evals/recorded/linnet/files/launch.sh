#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --standalone --nproc_per_node=2 --redirects 3 --log_dir logs train.py towers.yaml > launcher.log 2>&1
