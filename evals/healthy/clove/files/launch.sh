#!/bin/bash
python train.py --epochs 3 --lr 0.01 --noise 2.5 -b 16 --seed 3 2>&1 | tee log.txt
