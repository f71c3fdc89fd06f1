#!/bin/bash
export PYTHONUNBUFFERED=1
python train.py --config config.yaml > train.log
status=$?
echo "$(date '+%F %T') train.py left with status $status" >> cron.log
