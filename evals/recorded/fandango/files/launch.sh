#!/bin/bash
python train.py tiles.yaml > train.log 2>&1
