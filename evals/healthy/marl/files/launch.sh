#!/bin/bash
python train.py regress > train.log 2>&1
