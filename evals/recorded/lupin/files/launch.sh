#!/bin/bash
python train.py --epochs 8 --lr 5e-4 > train.log 2>&1
