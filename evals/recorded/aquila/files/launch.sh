#!/bin/bash
export PYTHONWARNINGS=always
python train.py > train.log 2>&1
