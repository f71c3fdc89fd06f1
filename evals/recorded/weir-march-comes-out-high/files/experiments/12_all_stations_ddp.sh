#!/bin/bash
# cluster
set -e
cd "$(dirname "$0")/.."
torchrun --nproc_per_node 4 train_all.py --csv data/all_stations.parquet --batch 4096 --lr 2e-3 --amp fp16
