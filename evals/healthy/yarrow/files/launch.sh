#!/bin/bash
python train.py --devices 2 --precision bf16-mixed --epochs 4 > train.log 2>&1
