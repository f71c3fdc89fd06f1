#!/bin/bash
python train.py --config intents.yaml > train.log 2>&1
