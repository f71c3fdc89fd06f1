#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29762 NODE_RANK=0
python train.py > train.log 2>&1
