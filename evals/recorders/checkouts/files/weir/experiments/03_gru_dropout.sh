#!/bin/bash
# 
set -e
cd "$(dirname "$0")/.."
python train.py --name 03_gru_dropout --net gru --width 64 --dropout 0.3 --weight-decay 0.05 --epochs 40
