uv run --isolated -m src.train \
  +run_async_trainer=true \
  data.train_data="['data/swe_gym/train.parquet']" \
  trainer.algorithm.advantage_estimator=grpo \
  trainer.policy.model.path=/models/Qwen3-4B \
  trainer.placement.colocate_all=false \
  trainer.strategy=fsdp2 \
  trainer.fully_async.num_parallel_generation_workers=16 \
  generator.backend=vllm generator.num_inference_engines=4 generator.async_engine=true \
  generator.enforce_eager=false generator.gpu_memory_utilization=0.75 generator.max_turns=20
