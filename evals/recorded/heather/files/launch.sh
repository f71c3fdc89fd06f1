#!/bin/bash
python -u train.py conf/main-2.yaml > logs/main-2.log 2>&1
