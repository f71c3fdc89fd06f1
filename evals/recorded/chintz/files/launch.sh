#!/bin/bash
export JOB_LOG=/tmp/ranker.$$.log
accelerate launch --cpu --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no train.py > accelerate.log 2>&1
