#!/bin/bash
python train.py --lr 1e-3 --epochs 10 > train.log 2>&1
