#!/bin/bash
python train.py --max_iters=20 --log_interval=2 --eval_iters=2 > train.log 2>&1
