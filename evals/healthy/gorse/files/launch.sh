#!/bin/bash
python train.py --log mlflow --steps 200 > train.log 2>&1
