#!/bin/bash
python train.py shepherd.yaml > train.log 2>&1
