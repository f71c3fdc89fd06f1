#!/bin/bash
python train.py --config views.yaml > train.log 2>&1
