# server 10.30.112.212
docker run --gpus all -p 10087:10087 train:1.1 python synthetic_benchmark.py --dist-url tcp://10.30.112.212:10087 --rank 0 --world-size 2
# server 10.30.112.224
docker run --gpus all -p 10087:10087 train:1.1 python synthetic_benchmark.py --dist-url tcp://10.30.112.212:10087 --rank 1 --world-size 2
