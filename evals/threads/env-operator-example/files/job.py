TrainingClient().train(
    name="fine-tune-bert",
    model_provider_parameters=HuggingFaceModelParams(model_uri="hf://google-bert/bert-base-cased"),
    trainer_parameters=HuggingFaceTrainerParams(
        training_parameters=transformers.TrainingArguments(
            output_dir="test_trainer", save_strategy="no", eval_strategy="no", do_eval=False,
            disable_tqdm=True, log_level="info"),
        lora_config=LoraConfig(r=8, lora_alpha=8, lora_dropout=0.1, bias="none")),
    num_workers=1, num_procs_per_worker=1)
