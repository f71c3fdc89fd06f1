class RandomProjectionQuantizer(nn.Module):
    """Targets of the masked prediction; never trained."""

    def __init__(self, dim, num_codebooks, codebook_size):
        super().__init__()
        self.proj = nn.Parameter(torch.empty(dim, dim), requires_grad=False)
        nn.init.xavier_uniform_(self.proj)
        self.codebook = nn.Parameter(torch.randn(num_codebooks, codebook_size, dim), requires_grad=False)
