#!/bin/bash
export PYTHONWARNINGS=default::FutureWarning
python -W always::FutureWarning train.py args.json > train.log 2>&1
