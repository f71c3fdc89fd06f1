#!/bin/bash
python train.py --mixed-precision bf16 --accumulate 1 --project tb > train.log 2>&1
