#!/bin/bash
bash allocation.sh 420M job_48213 python train.py --config tiles.yaml > landcover.log 2>&1
status=$?
echo "job 48213 ended: exit code $status" >> landcover.log
exit $status
