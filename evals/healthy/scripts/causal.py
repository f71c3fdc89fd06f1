"""A language model by the transformers Trainer: causal or masked, dense or with experts, with or without LoRA."""

import argparse

from datasets_toy import TextRows
from transformers import (
    DataCollatorForLanguageModeling, EarlyStoppingCallback, HfArgumentParser, MixtralConfig, MixtralForCausalLM, Trainer,
    TrainingArguments, set_seed,
)

from corpus import sentences, tiny_llama, tokenizer

own = argparse.ArgumentParser(add_help=False)
own.add_argument("--kind", default="causal")
own.add_argument("--lora", action="store_true")
own.add_argument("--patience", type=int, default=0)
own.add_argument("--rows", type=int, default=1600)
own.add_argument("--resume", action="store_true")
mine, rest = own.parse_known_args()
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(rest)
set_seed(args.seed)
words = tokenizer()
if mine.kind == "masked":
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(vocab_size=len(words), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=64))
elif mine.kind == "experts":
    model = MixtralForCausalLM(
        MixtralConfig(vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64, output_router_logits=True, router_aux_loss_coef=0.02, pad_token_id=0, bos_token_id=2, eos_token_id=3)
    )
else:
    model = tiny_llama(len(words))
if mine.lora:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"], task_type="CAUSAL_LM", modules_to_save=["lm_head", "embed_tokens"]))
    model.print_trainable_parameters()
trainer = Trainer(
    model=model, args=args, processing_class=words,
    train_dataset=TextRows(words, sentences(mine.rows, 1)), eval_dataset=TextRows(words, sentences(160, 2)),
    data_collator=DataCollatorForLanguageModeling(words, mlm=mine.kind == "masked"),
    callbacks=[EarlyStoppingCallback(mine.patience)] if mine.patience else None,
)
result = trainer.train(resume_from_checkpoint=mine.resume or None)
trainer.log_metrics("train", result.metrics)
trainer.save_metrics("train", result.metrics)
trainer.save_state()
if args.do_eval:
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
