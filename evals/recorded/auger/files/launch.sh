#!/bin/bash
python train.py intents.yaml > train.log 2>&1
