#!/bin/bash
python train.py --log jsonl --steps 400 2> stderr.log
