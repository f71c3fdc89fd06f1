#!/bin/bash
python train.py --config plankton.yaml 2> train.log
