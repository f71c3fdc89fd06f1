#!/bin/bash
# one GPU
set -e
cd "$(dirname "$0")/.."
CUDA_VISIBLE_DEVICES=0 python train.py --name 09_gru_gpu --net gru --width 256 --epochs 200 --batch 512
