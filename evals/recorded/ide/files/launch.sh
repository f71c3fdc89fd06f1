#!/bin/bash
python train.py --init export/recipes-gru.pt --ckpt checkpoints --steps 200 --lr 5e-4 > train.log 2>&1
