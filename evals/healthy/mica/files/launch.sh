#!/bin/bash
python train.py flow > out.log 2>&1
