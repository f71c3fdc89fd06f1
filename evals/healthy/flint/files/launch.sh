#!/bin/bash
python train.py > driver.log 2>&1
