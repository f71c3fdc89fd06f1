python -m sglang.launch_server --model-path /data/Qwen3-32B --tp 4 \
  --mem-fraction-static 0.9 --port 30000 &
