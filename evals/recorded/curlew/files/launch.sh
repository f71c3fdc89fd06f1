#!/bin/bash
bash allocation.sh 600M turbines-7f9c python train.py --config turbines.yaml > train.log 2>&1
status=$?
echo "exit status $status" >> train.log
exit $status
