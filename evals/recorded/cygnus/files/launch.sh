#!/bin/bash
# shared queue, slices; 85 asks to be queued again
bash queue.sh
