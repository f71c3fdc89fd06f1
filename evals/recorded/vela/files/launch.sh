#!/bin/bash
python train.py --epochs 15 > train.log 2>&1
