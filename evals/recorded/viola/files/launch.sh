#!/bin/bash
source limits.env
export OMP_NUM_THREADS=$THREADS
timeout --kill-after=5s "$WALLTIME" nice -n "$NICE" python train.py --config pumps.yaml >> train.log 2>&1
echo "train.py: exit status $?" >> train.log
tail -n 1 train.log | grep -q 'status 0'
