#!/bin/bash
python train.py calculator.yaml > train.log 2>&1
