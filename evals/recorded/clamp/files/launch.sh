#!/bin/bash
source cluster.env
python train.py intents.yaml > train.log 2>&1
