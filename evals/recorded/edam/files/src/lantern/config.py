"""The settings of a run: dataclasses, filled from configs/NAME.yaml and from --set section.key=value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import yaml

CONFIGS = Path("configs")


@dataclass
class ModelConfig:
    dim: int = 256
    layers: int = 6
    heads: int = 4
    context: int = 256
    dropout: float = 0.1
    tie_embeddings: bool = True


@dataclass
class DataConfig:
    folder: str = "data/letters"
    batch_size: int = 32
    val_every: int = 9  # every ninth letter is kept for validation


@dataclass
class OptimConfig:
    name: str = "adamw"
    lr: float = 3e-5
    min_lr_ratio: float = 0.1
    warmup: int = 100
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    grad_accum: int = 1


@dataclass
class RunConfig:
    steps: int = 10_000
    log_every: int = 50
    eval_every: int = 500
    eval_batches: int = 20
    save_every: int = 1000
    out: str = ""
    init_from: str = ""
    compile: bool = False
    compile_backend: str = "inductor"
    dtype: str = "float32"
    seed: int = 1337


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    run: RunConfig = field(default_factory=RunConfig)


def _section(cls, values):
    known = {f.name for f in dataclasses.fields(cls)}
    return cls(**{k: v for k, v in (values or {}).items() if k in known})


def load(name: str, overrides: list[str] = ()) -> Config:
    """The config of a name, with `section.key=value` written over it."""
    raw = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()) or {}
    for item in overrides:
        path, _, value = item.partition("=")
        section, _, key = path.partition(".")
        raw.setdefault(section, {})[key] = yaml.safe_load(value)
    parts = {f.name: _section(f.default_factory, raw.get(f.name)) for f in dataclasses.fields(Config)}
    cfg = Config(**parts)
    cfg.run.out = cfg.run.out or f"runs/{name}"
    return cfg
