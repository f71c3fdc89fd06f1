#!/bin/bash
python train.py rloo --lr 1e-3 --steps 100 --beta 0.02 > train.log 2>&1
