#!/bin/bash
python -u train.py --config species.yaml 2> train.log
