#!/bin/bash
mkdir -p logs
python train.py > logs/train.log 2>&1
