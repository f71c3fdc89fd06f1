#!/bin/bash
bash slot.sh bash job.sh > job.log 2>&1
