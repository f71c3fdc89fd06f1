#!/bin/bash
# six hours ahead, for the lock keepers
set -e
cd "$(dirname "$0")/.."
python train.py --name 05_six_hours --ahead 6 --epochs 30
