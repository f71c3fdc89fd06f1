#!/bin/bash
python train.py --config conf/wells.yaml > wells.jsonl 2> stderr.log
