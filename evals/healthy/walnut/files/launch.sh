#!/bin/bash
python train.py --logger tensorboard --bar rich --epochs 4 > train.log 2>&1
