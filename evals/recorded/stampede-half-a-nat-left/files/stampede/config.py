"""Configs: a yaml over its base, over which go `section.key=value` of the command line."""
from pathlib import Path

import yaml


def over(low, high):
    out = dict(low)
    for k, v in high.items():
        out[k] = over(out[k], v) if isinstance(v, dict) and isinstance(out.get(k), dict) else v
    return out


def load(path, overrides=()):
    path = Path(path)
    said = yaml.safe_load(path.read_text()) or {}
    base = said.pop("base", None)
    cfg = over(load(path.parent / base), said) if base else said
    for item in overrides:
        key, _, value = item.partition("=")
        *parents, last = key.split(".")
        at = cfg
        for p in parents:
            at = at[p]
        if last not in at:
            raise KeyError(f"{key}: no such setting")
        at[last] = yaml.safe_load(value) if not value.replace("e-", "").replace(".", "").isdigit() else float(value) if "e" in value or "." in value else int(value)
    return cfg
