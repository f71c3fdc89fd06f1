#!/bin/bash
taskset -c 1 bash where.sh
