#!/bin/bash
bash job.sh 400 > slurm-48102.out 2>&1
