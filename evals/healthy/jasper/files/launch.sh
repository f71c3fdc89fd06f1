#!/bin/bash
python train.py > ppo.log 2>&1
