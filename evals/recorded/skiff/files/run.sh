#!/bin/bash
# two nodes, two workers each
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
{
  for host in $(cut -d' ' -f1 hostfile); do
    getent hosts $host
    ssh -o BatchMode=yes -o ConnectTimeout=5 $host nproc
  done
  deepspeed --hostfile hostfile --master_port 29766 train.py --deepspeed_config ds.json
} > train.log 2>&1
