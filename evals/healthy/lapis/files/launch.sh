#!/bin/bash
python train.py gan > train.log 2>&1
