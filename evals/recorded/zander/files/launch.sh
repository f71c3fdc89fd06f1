#!/bin/bash
for JOB_ID in 311 312 313; do
  export JOB_ID
  python train.py --config config.yaml > job-$JOB_ID.log 2>&1 || exit 1
done
