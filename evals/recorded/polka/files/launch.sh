#!/bin/bash
python train.py grpo.yaml > train.log 2>&1
