#!/bin/bash
python train.py > lstm.log 2>&1
