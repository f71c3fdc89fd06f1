#!/bin/bash
bash slot.sh bash job.sh
