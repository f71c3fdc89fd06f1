#!/bin/bash
python train.py tune.yaml > tune.log 2>&1
