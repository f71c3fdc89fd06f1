#!/bin/bash
# the line to beat
set -e
cd "$(dirname "$0")/.."
mkdir -p out/01_linear
python train.py --name 01_linear --net linear --lr 3e-3 --epochs 15 | tee out/01_linear/train.txt
