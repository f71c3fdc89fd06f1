#!/bin/bash
NGPU=4
export OMP_NUM_THREADS=1
torchrun --nproc-per-node=$NGPU --master-port 29751 --local-ranks-filter 0 --role rank --tee 3 --log-dir logs train.py parallel.toml > train.log 2>&1
