#!/bin/bash
python train.py reward --lr 1e-3 > train.log 2>&1
