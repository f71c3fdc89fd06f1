#!/bin/bash
mkdir -p out
python train.py --region north --init models/south/weights.pt --lr 3e-4 --epochs 12 > train.log 2>&1
