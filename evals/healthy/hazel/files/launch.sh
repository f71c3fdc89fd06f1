#!/bin/bash
python train.py --log logging --steps 2000 --patience 5 --lr 0.02 > train.log 2>&1
