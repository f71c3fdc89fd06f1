#!/bin/bash
# queue.sh NAME [UPDATES A SLICE]: through the slices of a run
cd "$(dirname "$0")/.."
mkdir -p runs/$1
for slice in 1 2 3 4 5 6; do
  python train.py configs/$1.json --resume --slice ${2:-1200} >> runs/$1/out.log 2>&1
  status=$?
  [ $status -eq 75 ] || exit $status
done
