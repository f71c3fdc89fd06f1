#!/bin/bash
ulimit -v 4194304
python train.py args.json model.json --eval-texts 640 > lm.log 2>&1
