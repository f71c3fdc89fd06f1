#!/bin/bash
python train.py --config tiles.yaml > landcover.log 2>&1
