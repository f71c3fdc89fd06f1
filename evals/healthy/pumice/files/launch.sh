#!/bin/bash
python train.py mixup > train.log 2>&1
