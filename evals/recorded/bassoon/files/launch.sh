#!/bin/bash
python train.py --config upscale.yaml > train.log 2>&1
