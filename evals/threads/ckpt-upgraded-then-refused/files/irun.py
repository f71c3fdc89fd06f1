import pytorch_lightning as pl, torch
from nets import Encoder


class IRun(pl.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.model = torch.compile(Encoder(args.width))

    def training_step(self, batch, _):
        return self.model(*batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-4)
