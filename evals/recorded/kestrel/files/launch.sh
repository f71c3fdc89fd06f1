#!/bin/bash
python train.py --config tagger.yaml > tagger.log 2>&1
