#!/bin/bash
# 
set -e
cd "$(dirname "$0")/.."
for s in 1 2 3 4 5; do python train.py --name seeds/$s --seed $s --net gru; done
