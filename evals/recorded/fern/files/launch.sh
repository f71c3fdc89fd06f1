#!/bin/bash
python -u train.py --data data --epochs 2 --batch-size 16 --lr 1e-3 --clip 1.0 > train.log 2>&1
