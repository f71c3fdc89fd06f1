#!/bin/bash
python train.py --log logging 2> train.log
