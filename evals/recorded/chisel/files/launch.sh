#!/bin/bash
export PYTHONPATH=$PWD LD_BIND_NOW=1
python train.py > train.log 2>&1
