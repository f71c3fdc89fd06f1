"""python fit.py CONFIG [section.key=value ...] [--ckpt FILE]"""
import argparse
import logging
import warnings
from pathlib import Path

import lightning as L
import yaml
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from stampede import config
from stampede.data import Stamps
from stampede.module import StampNet


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("config")
    ap.add_argument("overrides", nargs="*")
    ap.add_argument("--ckpt")
    args = ap.parse_args()
    cfg = config.load(args.config, args.overrides)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.INFO)
    L.seed_everything(cfg["seed"])
    logger = CSVLogger(".", flush_logs_every_n_steps=50)
    out = Path(logger.log_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.yaml").write_text(yaml.safe_dump({"config": args.config, **cfg}, sort_keys=False))
    calls = [ModelCheckpoint(out / "checkpoints", "best", monitor="val_loss", save_last=True)]
    if cfg["patience"]:
        calls.append(EarlyStopping("val_loss", patience=cfg["patience"]))
    trainer = L.Trainer(logger=logger, callbacks=calls, enable_progress_bar=False, enable_model_summary=True,
                        num_sanity_val_steps=0, log_every_n_steps=10, **cfg["trainer"])
    trainer.fit(StampNet(cfg["model"], cfg["optim"], cfg["loss"], cfg["augment"]), Stamps(cfg["data"]), ckpt_path=args.ckpt)
    print(f"best val_loss {calls[0].best_model_score:.4f}: {calls[0].best_model_path}")


if __name__ == "__main__":
    main()
