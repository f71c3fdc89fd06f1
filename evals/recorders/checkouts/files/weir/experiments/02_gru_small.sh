#!/bin/bash
# 
set -e
cd "$(dirname "$0")/.."
mkdir -p out/02_gru_small
python train.py --name 02_gru_small --net gru --width 32 --epochs 30 | tee out/02_gru_small/train.txt
