trainer = Trainer(backend="torch", num_workers=2, max_retries=3)
trainer.start()
result = trainer.run(train_func, config={"lr": 1e-3, "batch_size": 64, "epochs": 4})
