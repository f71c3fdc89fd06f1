#!/bin/bash
export OMP_NUM_THREADS=1
python train.py --config moldings.yaml > train.log 2>&1 &
job=$!
sleep 2
bash watch.sh $job train.log > watch.log 2>&1 &
wait $job
status=$?
echo "train.py ended with $status" >> job.log
exit $status
