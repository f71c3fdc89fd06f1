#!/bin/bash
export OMP_NUM_THREADS=1
python -u train.py --config digits.yaml > train.log 2>&1
