#!/bin/bash
python train.py sft > train.log 2>&1
