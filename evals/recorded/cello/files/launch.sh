#!/bin/bash
bash container.sh bash job.sh
