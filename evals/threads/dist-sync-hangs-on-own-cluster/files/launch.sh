mpirun -np 2 -H localhost:2 -x NCCL_DEBUG=INFO python train.py
# with -x NCCL_P2P_DISABLE=1 it trains
