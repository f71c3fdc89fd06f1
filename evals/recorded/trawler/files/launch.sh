#!/bin/bash
# learning rate sweep, two at a time
export OMP_NUM_THREADS=1
common="--nproc-per-node 2 --master-port 29768"
torchrun $common train.py --lr 1e-3 --epochs 12 --logging_dir lr_1e-3 > sweep_lr_1e-3.log 2>&1 &
until grep -qs step=20 lr_1e-3/process_0.log; do sleep 1; done   # the first one warms the file cache
torchrun $common train.py --lr 3e-3 --epochs 12 --logging_dir lr_3e-3 > sweep_lr_3e-3.log 2>&1
status=$?
wait
exit $status
