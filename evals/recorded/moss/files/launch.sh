#!/bin/bash
python train.py --config catalogue.yaml > train.log 2>&1
