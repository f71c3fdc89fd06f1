#!/bin/bash
python train.py rollout.yaml > train.log 2>&1
