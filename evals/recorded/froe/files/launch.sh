#!/bin/bash
python train.py --config lm.yaml > train.log 2>&1
