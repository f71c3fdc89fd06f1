#!/bin/bash
python train.py finetune.yaml --seed 4 > finetune.log 2>&1
