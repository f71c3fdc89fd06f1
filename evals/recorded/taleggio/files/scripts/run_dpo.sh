#!/bin/bash
CUDA_VISIBLE_DEVICES=3 python run_dpo.py --beta 0.5 --learning_rate 1e-5 2>&1 | tee logs/dpo.log
