#!/bin/bash
for JOB_ID in 7001 7002; do
  export JOB_ID
  python train.py --config config.yaml > logs-$JOB_ID.log 2>&1 || exit 1
done
