#!/bin/bash
python train.py grpo --lr 3e-4 --steps 120 --beta 0.04 > train.log 2>&1
