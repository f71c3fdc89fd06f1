#!/bin/bash
# 
set -e
cd "$(dirname "$0")/.."
mkdir -p out/06_dense_wide
python train.py --name 06_dense_wide --net dense --width 384 --epochs 40 --batch 64 | tee out/06_dense_wide/train.txt
python backtest.py --run out/06_dense_wide --from 2024-03-01 | tee out/06_dense_wide/backtest.txt
