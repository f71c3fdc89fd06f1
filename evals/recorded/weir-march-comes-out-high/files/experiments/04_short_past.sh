#!/bin/bash
# one day of past instead of two
set -e
cd "$(dirname "$0")/.."
python train.py --name 04_short_past --past 24 --epochs 30
