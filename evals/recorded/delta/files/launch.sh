#!/bin/bash
python -u train.py --config rnn.yaml > train.log 2>&1
