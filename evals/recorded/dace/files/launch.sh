#!/bin/bash
python train.py finetune.yaml > finetune.log 2>&1
