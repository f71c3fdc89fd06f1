#!/bin/bash
python train.py qa.yaml > train.log 2>&1
