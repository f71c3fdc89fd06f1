#!/bin/bash
python train.py --config letters.yaml > run.log 2>&1
