#!/bin/bash
python train.py --epochs 4 > train.log 2>&1
