#!/bin/bash
python train.py experts > nohup.out 2>&1
