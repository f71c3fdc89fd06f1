samples_per_gpu = 16
optimizer = dict(type='AdamW', lr=3e-4)
total_epochs = 70
