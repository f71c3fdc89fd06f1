#!/bin/bash
python train.py grpo --lr 1e-3 --steps 100 > train.log 2>&1
