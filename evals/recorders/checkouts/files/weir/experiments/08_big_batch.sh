#!/bin/bash
# 
set -e
cd "$(dirname "$0")/.."
python train.py --name 08_big_batch --net dense --batch 1024 --lr 4e-3
