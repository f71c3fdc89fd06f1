#!/bin/bash
python train.py --model model --melodies 1 --notes 320 > compose.log 2>&1
