class Block(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = mpu.ColumnParallelLinear(dim, 4 * dim, gather_output=False)

    def forward(self, x):
        y, _ = self.up(x)
        return y.transpose(0, 1)
