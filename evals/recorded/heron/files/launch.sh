#!/bin/bash
bash allocation.sh 560M step_batch_90417 python train.py --config config.json > gru.log 2>&1
status=$?
echo "exit $status" >> gru.log
exit $status
