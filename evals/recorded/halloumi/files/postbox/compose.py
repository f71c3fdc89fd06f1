"""Put a config together from conf/: the defaults list, chosen groups and values written over it, as hydra would."""

import copy
import re
import sys
from pathlib import Path

import yaml

CONF = Path("conf")


class Config(dict):
    """A dictionary whose entries can be read as attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"Key '{name}' is not in struct") from None


def _wrap(value):
    if isinstance(value, dict):
        return Config({k: _wrap(v) for k, v in value.items()})
    return [_wrap(v) for v in value] if isinstance(value, list) else value


def _read(path):
    return yaml.safe_load((CONF / f"{path}.yaml").read_text()) or {}


def _number(text):
    """YAML 1.1 reads 2e-3 as a word."""
    value = yaml.safe_load(text)
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
        return float(value)
    return value


def _set(cfg, dotted, value, append):
    *way, last = dotted.split(".")
    node = cfg
    for part in way:
        if part not in node and append:
            node[part] = {}
        node = node[part]
    if last not in node and not append:
        sys.exit(f"Could not override '{dotted}'.\nTo append to your config use +{dotted}={value}\nKey '{last}' is not in struct")
    node[last] = value


def _resolve(cfg, root):
    for key, value in cfg.items():
        if isinstance(value, dict):
            _resolve(value, root)
        elif isinstance(value, str):
            cfg[key] = re.sub(r"\$\{([\w.]+)\}", lambda m: str(_look_up(root, m[1])), value)


def _look_up(root, dotted):
    for part in dotted.split("."):
        root = root[part]
    return root


def compose(argv):
    """The config of a command line: groups first, then values in their order."""
    main = _read("config")
    defaults = main.pop("defaults")
    groups = {k: v for d in defaults if isinstance(d, dict) for k, v in d.items()}
    values = []
    for item in argv:
        key, _, text = item.partition("=")
        if key == "experiment":
            for k, v in _read(f"experiment/{text}").items():
                if k in groups:
                    groups[k] = v
                else:
                    values.append((k, v, False))
        elif key in groups:
            groups[key] = text
        else:
            values.append((key.lstrip("+"), _number(text), key.startswith("+")))
    cfg = {group: _read(f"{group}/{name}") for group, name in groups.items()}
    cfg.update(copy.deepcopy(main))
    for key, value, append in values:
        _set(cfg, key, value, append)
    _resolve(cfg, cfg)
    return _wrap(cfg), groups


def plain(cfg):
    if isinstance(cfg, dict):
        return {k: plain(v) for k, v in cfg.items()}
    return [plain(v) for v in cfg] if isinstance(cfg, list) else cfg


def write(cfg, groups, argv, folder):
    """The three files that hydra leaves in .hydra/."""
    home = Path(folder) / ".hydra"
    home.mkdir(parents=True, exist_ok=True)
    job = {k: v for k, v in plain(cfg).items() if k != "hydra"}
    (home / "config.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    (home / "overrides.yaml").write_text("".join(f"- {a}\n" for a in argv) or "[]\n")
    hydra = {"run": {"dir": folder}, "sweep": {"dir": "multirun/${now:%Y-%m-%d}", "subdir": "${hydra.job.num}"},
             "mode": "RUN", "overrides": {"hydra": [], "task": list(argv)}, "job": {"name": "train", "chdir": False},
             "runtime": {"version": "1.3.2", "choices": dict(groups)}}
    (home / "hydra.yaml").write_text(yaml.safe_dump({"hydra": hydra}, sort_keys=False))
