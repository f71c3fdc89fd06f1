"""Settings: defaults, over which goes a TOML file, over which goes --set."""
import copy
import tomllib

DEFAULTS = {
    "data": {"folder": "data/sessions", "window": 40, "hop": 20, "val": ["s07", "s08"], "rate_hz": 20},
    "net": {"hidden": 24, "layers": 1, "dropout": 0.0},
    "train": {"batch": 16, "lr": 0.004, "epochs": 16, "clip": 1.0, "workers": 0, "device": "cpu"},
    "run": {"name": "run", "seed": 0},
}


def load(path, sets=()):
    cfg = copy.deepcopy(DEFAULTS)
    with open(path, "rb") as f:
        said = tomllib.load(f)
    said = [(s, k, v) for s, part in said.items() for k, v in part.items()]
    said += [(*item.split("=", 1)[0].split("."), tomllib.loads("v = " + item.split("=", 1)[1])["v"]) for item in sets]
    for section, key, value in said:
        if key not in cfg.get(section, {}):
            raise SystemExit(f"{path}: no setting {section}.{key}")
        cfg[section][key] = value
    return cfg


def dump(cfg):
    def word(v):
        return str(v).lower() if isinstance(v, bool) else repr(v).replace("'", '"')
    return "\n".join(f"[{s}]\n" + "".join(f"{k} = {word(v)}\n" for k, v in part.items()) for s, part in cfg.items())
