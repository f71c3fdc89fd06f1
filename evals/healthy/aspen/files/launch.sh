#!/bin/bash
python train.py --dtype=bfloat16 --gradient_accumulation_steps=2 --batch_size=6 --seed=7 > out.txt 2>&1
