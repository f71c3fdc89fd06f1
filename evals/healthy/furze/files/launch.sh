#!/bin/bash
python train.py --log wandb --steps 200 > train.log 2>&1
