#!/bin/bash
python train.py dpo --lora --lr 2e-3 --beta 0.2 > train.log 2>&1
