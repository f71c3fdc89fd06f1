#!/bin/bash
python train.py quiz.yaml > train.log 2>&1
