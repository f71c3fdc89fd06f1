#!/bin/bash
python train.py --steps 240 > train.log 2>&1
