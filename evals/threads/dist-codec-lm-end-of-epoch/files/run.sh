python3 bin/trainer.py --max-duration 80 --filter-min-duration 0.5 --train-stage 1 \
  --num-buckets 6 --dtype bfloat16 --save-every-n 10000 --valid-interval 20000 \
  --model-name valle --share-embedding true --norm-first true --drop-last false \
  --base-lr 0.05 --warmup-steps 200 --num-epochs 20 --world-size 8 --exp-dir exp/valle
