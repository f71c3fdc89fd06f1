#!/bin/bash
python train.py --batch_size=1 --max_iters=700 --lr_decay_iters=700 --learning_rate=0.002 --eval_iters=40 > train.log 2>&1
