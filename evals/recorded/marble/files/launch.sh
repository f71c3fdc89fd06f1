#!/bin/bash
python train.py --config t5.yaml > train.log 2>&1
