#!/bin/bash
# 4 ranks on one node
set -u
export OMP_NUM_THREADS=1
memory() { date '+%F %T'; free -m; grep oom_kill /proc/vmstat; }
memory > memory.txt
torchrun --nproc-per-node 4 --master-port 29741 --log-dir logs --redirects 3 train.py --config config.yaml > launcher.log 2>&1
status=$?
memory >> memory.txt
exit $status
