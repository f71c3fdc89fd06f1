#!/bin/bash
python train.py --config sft.yaml > train.log 2>&1
