class Trainer:
    def save_model(self, epoch, path):
        torch.save({
            "epoch": epoch,
            "model_state_dict": self.model.state_dict(),
            "optimizer_state_dit": self.optimizer.state_dict(),
            "best_val_loss": self.best_val_loss,
        }, path)

    def load_checkpoint(self, path):
        checkpoint = torch.load(path)
        self.model.load_state_dict(checkpoint["model_state_dict"])
        self.optimizer.load_state_dict(checkpoint["optimizer_state_dit"])
        self.best_val_loss = checkpoint["best_val_loss"]
        self.starting_epoch = checkpoint["epoch"] + 1

    def train(self):
        for epoch in range(self.starting_epoch, self.max_epoch + 1):
            self.train_one_epoch(epoch)
            if self.lr_scheduler:
                self.lr_scheduler.step()
