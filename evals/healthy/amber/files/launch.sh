#!/bin/bash
python train.py dpo --lr 5e-4 > train.log 2>&1
