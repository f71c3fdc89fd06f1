#!/bin/bash
python train.py --log csv --task values --lr 0.01 --steps 300 2> train.log
