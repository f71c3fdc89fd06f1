#!/bin/bash
python train.py --batch-size 4 --limit-steps 9000 --profile > churn.log 2>&1
