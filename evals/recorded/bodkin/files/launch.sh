#!/bin/bash
python train.py stock.yaml > train.log 2>&1
