#!/bin/bash
python train.py sums.yaml > sums.log 2>&1
