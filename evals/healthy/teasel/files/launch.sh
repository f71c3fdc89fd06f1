#!/bin/bash
deepspeed --num_accelerators 2 train.py --deepspeed --deepspeed_config ds_config.json > train.log 2>&1
