#!/bin/bash
python train.py translate.yaml > translate.log 2>&1
