#!/bin/bash
export OMP_NUM_THREADS=4
echo "node $(hostname), $(nproc) cores"
python train.py --config moldings.yaml > train.log 2>&1
