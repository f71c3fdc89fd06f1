#!/bin/bash
python train.py --log tensorboard --steps 300 2> train.log
