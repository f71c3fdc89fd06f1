#!/bin/bash
ulimit -c 0
export PYTHONFAULTHANDLER=1
python train.py mails.jsonl > train.log 2>&1
exit $?
