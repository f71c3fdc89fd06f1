#!/bin/bash
python train.py --epochs 3 > first.log 2>&1
python train.py --epochs 7 --resume logs/version_0/checkpoints/last.ckpt > second.log 2>&1
