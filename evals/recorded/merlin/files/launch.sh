#!/bin/bash
python -m cProfile -s tottime train.py --epochs 2 --batch-size 32 2>&1 | head -n 60 > profile.log
