#!/bin/bash
# The shared queue gives slices; what is not done by then is killed and comes again.
# slices.sh PRESET
for slice in 1 2 3 4; do
  timeout -s KILL 3600 python train.py @presets/$1.args --resume && break
  echo "slice $slice over, killed" >> queue.log
done
