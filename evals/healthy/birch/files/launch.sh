#!/bin/bash
python train.py --early_pause=250 > train.log 2>&1
