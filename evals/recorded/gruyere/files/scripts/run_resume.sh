#!/bin/bash
# After the queue's time limit: the newest checkpoint of gpt2-medium.
bash scripts/run_gpt2_8gpu.sh --resume_from_checkpoint True
