#!/bin/bash
python train.py --epochs 60 --patience 3 > train.log 2>&1
