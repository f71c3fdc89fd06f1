#!/bin/bash
python train.py grpo --lr 3e-4 --steps 100 > train.log 2>&1
