#!/bin/bash
export CXX=g++-9
export TORCH_SHOW_CPP_STACKTRACES=0
python train.py --steps 60 --lr 2e-3 > train.log 2>&1
