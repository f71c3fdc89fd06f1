#!/bin/bash
python train.py --csv depots.csv --epochs 6 --book plan.xlsx > train.log 2>&1
