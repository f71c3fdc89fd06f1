#!/bin/bash
# job 77141, names, node01
echo "job 77141 on node01, memory 4 GB" > job.log
python train.py --csv names.csv --epochs 8 --workers 2 >> job.log 2>&1
