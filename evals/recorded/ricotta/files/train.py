"""Train a sorter: python train.py [group=choice ...] [key=value ...] [+new.key=value ...]"""

import logging
import sys
from pathlib import Path

import torch

from postbox import compose, data, models, trainer

log = logging.getLogger("train")


def main(argv):
    cfg, groups = compose.compose(argv)
    out = cfg.hydra.run.dir
    Path(out).mkdir(parents=True, exist_ok=True)
    compose.write(cfg, groups, argv, out)
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s",
                        handlers=[logging.StreamHandler(sys.stdout), logging.FileHandler(Path(out) / "train.log", "w")])
    torch.manual_seed(cfg.seed)
    train, val, mails = data.loaders(cfg.data)
    model = models.build(cfg.model, len(mails.vocabulary), len(mails.topics))
    log.info("model %s, %d parameters, optim %s lr %g", groups["model"], sum(p.numel() for p in model.parameters()),
             cfg.optim.name, cfg.optim.lr)
    trainer.fit(model, train, val, cfg, out)
    torch.save({"model": model.state_dict(), "words": mails.vocabulary.index, "topics": mails.topics}, Path(out) / "best.pt")
    loss, acc = trainer.validate(model, val)
    log.info("final: val %.4f, accuracy %.3f, written to %s", loss, acc, out)


if __name__ == "__main__":
    main(sys.argv[1:])
