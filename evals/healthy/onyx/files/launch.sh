#!/bin/bash
python train.py restarts > train.log 2>&1
