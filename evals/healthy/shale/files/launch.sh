#!/bin/bash
python train.py seeds > stdout.txt 2>&1
