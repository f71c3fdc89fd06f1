"""Train a causal language model on questions and answers. Takes every argument of the Trainer."""

import logging
import sys

import transformers
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments, set_seed

from larder import tokens
from larder.arguments import DataArguments, ModelArguments
from larder.dataset import Answers, Padded
from larder.scores import token_accuracy

log = logging.getLogger("run_clm")


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    margs, dargs, targs = parser.parse_args_into_dataclasses()
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO, stream=sys.stdout)
    transformers.utils.logging.set_verbosity_info()
    log.info("Training arguments: lr %s, schedule %s, steps %s, template %s", targs.learning_rate, targs.lr_scheduler_type,
             targs.max_steps, dargs.template)
    set_seed(targs.seed)
    tokenizer = tokens.load(margs.tokens)
    if margs.model_name_or_path:
        model = AutoModelForCausalLM.from_pretrained(margs.model_name_or_path)
    else:
        config = AutoConfig.from_pretrained(margs.config_name)
        config.vocab_size = margs.vocab_size or len(tokenizer)
        config.pad_token_id, config.eos_token_id, config.bos_token_id = (
            tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id)
        model = AutoModelForCausalLM.from_config(config)
        log.info("new model: %d parameters, vocabulary %d", model.num_parameters(), config.vocab_size)
    train = Answers(dargs.train_file, tokenizer, dargs.template, dargs.max_length)
    val = Answers(dargs.eval_file, tokenizer, dargs.template, dargs.max_length)
    log.info("%d answers to train on, %d to evaluate", len(train), len(val))
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=train,
        eval_dataset=val,
        processing_class=tokenizer,
        data_collator=Padded(tokenizer.pad_token_id, dargs.max_length),
        compute_metrics=token_accuracy if dargs.metric_tokens else None,
    )
    if targs.do_train:
        result = trainer.train(resume_from_checkpoint=targs.resume_from_checkpoint)
        trainer.save_model()
        trainer.log_metrics("train", result.metrics)
        trainer.save_metrics("train", result.metrics)
        trainer.save_state()
    if targs.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
