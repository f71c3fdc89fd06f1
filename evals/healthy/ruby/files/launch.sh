#!/bin/bash
python train.py distil > distil.log 2>&1
