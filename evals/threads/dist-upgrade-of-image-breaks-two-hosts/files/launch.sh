mpirun -np 2 -H host-a:1,host-b:1 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -mca btl_tcp_if_exclude docker0,lo python pytorch_imagenet_resnet50.py
