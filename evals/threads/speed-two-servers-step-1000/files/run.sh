mpirun -np 8 -H server1:4,server2:4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib \
  python scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py --model resnet50 --batch_size 64 --variable_update horovod \
  --data_name=imagenet --data_dir=/share/imagenet --num_batches=4000 --use_fp16=False
