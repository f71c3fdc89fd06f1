#!/bin/bash
python train.py > out.log 2>&1
