lm_eval --model hf \
  --model_args pretrained=/models/llama3-8b,tokenizer=/data/out/adapter,load_in_4bit=True,peft=/data/out/adapter \
  --tasks hellaswag --device cuda:0 --batch_size 1
