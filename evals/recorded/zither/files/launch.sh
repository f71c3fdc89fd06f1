#!/bin/bash
export TENSORBOARD_LOGGING_DIR=tb
python train.py notes.csv > train.log 2>&1
