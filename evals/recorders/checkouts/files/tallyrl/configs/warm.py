width = 64
length = 5
steps = 90
batch = 64
lr = 4e-3
seed = 1
