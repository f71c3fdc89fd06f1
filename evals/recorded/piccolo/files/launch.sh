#!/bin/bash
python train.py --config distill.yaml > train.log 2>&1
