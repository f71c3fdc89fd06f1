model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-14B", max_seq_length=16384, load_in_4bit=True)
max_seq_length = 16384
trainer = SFTTrainer(
    model=model,
    tokenizer=tokenizer,
    train_dataset=dataset,
    dataset_text_field="text",
    max_seq_length = max_seq_length,
    args=SFTConfig(
        per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=5, max_steps=60,
        learning_rate=2e-4, logging_steps=10, optim="adamw_8bit", output_dir="outputs"),
)
print("longest tokenized example:", max(len(r["input_ids"]) for r in trainer.train_dataset))
