#!/bin/bash
python train.py --config lora.yaml > train.log 2>&1
