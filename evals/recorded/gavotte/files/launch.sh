#!/bin/bash
python train.py moe.yaml > train.log 2>&1
