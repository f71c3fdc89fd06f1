#!/bin/bash
bash storage.sh &
storage=$!
export STORAGE=http://127.0.0.1:8126 OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --max-restarts 3 --master-port 29761 train.py > train.log 2>&1
status=$?
kill $storage
exit $status
