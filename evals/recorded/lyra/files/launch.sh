#!/bin/bash
python train.py --config melodies.yaml > train.log 2>&1
