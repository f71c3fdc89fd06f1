#!/bin/bash
python train.py switch.yaml > train.log 2>&1
