#!/bin/bash
# diverged on the winter data, kept for the record
set -e
cd "$(dirname "$0")/.."
python train.py --name 07_dense_hot --net dense --width 384 --lr 0.3
