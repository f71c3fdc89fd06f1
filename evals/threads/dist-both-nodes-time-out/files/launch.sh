# the same on both pods
export LOGLEVEL=INFO
python -m torch.distributed.run --nproc_per_node=1 --nnodes=2 \
  --rdzv_id=ID1 --rdzv_backend=c10d --rdzv_endpoint=worker-0-svc:2222 launch_mnist.py
