#!/bin/bash
python train.py --micro-batch 8 --accumulate 8 --lr 0.05 --out small > small.log 2>&1
