#!/bin/bash
export MASTER_PORT=29763
python train.py > train.log 2>&1
