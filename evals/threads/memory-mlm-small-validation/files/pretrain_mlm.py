from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast, DataCollatorForLanguageModeling
from transformers import Trainer, TrainingArguments

from corpus import load_split

tokenizer = BertTokenizerFast.from_pretrained("bert-base-uncased", model_max_length=512)
model = BertForMaskedLM(BertConfig(vocab_size=30522))
collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

args = TrainingArguments(
    output_dir="/data/mlm",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=8,
    learning_rate=5e-5,
    num_train_epochs=3,
    fp16=True,
    evaluation_strategy="steps",
    eval_steps=1500,
    logging_steps=500,
)
trainer = Trainer(
    model=model, args=args, data_collator=collator,
    train_dataset=load_split("train", tokenizer), eval_dataset=load_split("validation", tokenizer),
)
trainer.train()
