"""Settings: a python file, over which go name=value pairs."""
import ast
import runpy
from pathlib import Path
from types import SimpleNamespace


def load(path, pairs=()):
    said = {k: v for k, v in runpy.run_path(path).items() if not k.startswith("_")}
    said.setdefault("name", Path(path).stem)
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in said:
            raise SystemExit(f"{path} has no {key}")
        try:
            said[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            said[key] = value
    return SimpleNamespace(**said)
