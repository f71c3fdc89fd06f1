#!/bin/bash
python train.py > train.log 2>&1
