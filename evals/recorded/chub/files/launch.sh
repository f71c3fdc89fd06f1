#!/bin/bash
source prolog.sh > train.log 2>&1
python train.py --config config.yaml >> train.log 2>&1
status=$?
mkdir -p results
cp -r scratch/helpdesk/runs results/tensorboard 2>> train.log
{ ls -la scratch/helpdesk; df -h scratch; } >> train.log
exit $status
