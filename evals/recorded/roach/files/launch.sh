#!/bin/bash
python train.py > logs-tuesday.log 2>&1
