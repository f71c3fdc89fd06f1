#!/bin/bash
for attempt in 1 2 3; do
  torchrun --standalone --nproc-per-node 2 train.py --save-every 25 --lose 90 >> train.log 2>&1
  status=$?; [ $status = 0 ] && break
  echo "$(date '+%F %T') attempt $attempt ended with status $status, starting again from the last checkpoint" >> train.log
done
