#!/bin/bash
python train.py --log tqdm --steps 300 > console.log 2>&1
