#!/bin/bash
python train.py genome.json > genome.log 2>&1
