#!/bin/bash
python train.py --config demand.yaml > train.log 2>&1
