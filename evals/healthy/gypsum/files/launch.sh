#!/bin/bash
python train.py --logger tensorboard --precision bf16-mixed --epochs 6 > train.log 2>&1
