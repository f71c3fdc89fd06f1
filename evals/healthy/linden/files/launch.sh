#!/bin/bash
torchrun --standalone --nproc-per-node 2 train.py --wait 0.1 > slurm-4117.out 2>&1 &
until grep -q 'step: 60 ' slurm-4117.out; do sleep 0.2; done; kill -TERM $!; wait
torchrun --standalone --nproc-per-node 2 train.py > slurm-4118.out 2>&1
