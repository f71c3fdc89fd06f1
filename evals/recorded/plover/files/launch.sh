#!/bin/bash
# 3 GB for each job on the shared login host
ulimit -v 3145728
python train.py --config subjects.yaml > subjects.log 2>&1
