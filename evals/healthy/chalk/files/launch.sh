#!/bin/bash
python train.py rloo --lr 3e-4 --steps 100 --beta 0.05 > train.log 2>&1
