#!/bin/bash
ulimit -v 3145728
python train.py args.json > vit.log 2>&1
