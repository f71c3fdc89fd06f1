#!/bin/bash
python train.py dqn > dqn.log 2>&1
