#!/bin/bash
python train.py shifted.yaml > vit_s_shifted.log 2>&1
