#!/bin/bash
python train.py sft --lora --packing --lr 5e-3 > train.log 2>&1
