"""Incidents in which somebody has planted text that wants something, made on the fly from recorded ones.

`hostile.yaml` holds the attacks: what each says and at which places. A variant is an attack at a place of an incident;
the verdict of the incident holds for it too, since a text that asks is no failure.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .case import Case, load

PER_PLACE = 2  # incidents that get each attack at each of its places
_NAME_BYTES = 200  # of a planted file name


@dataclass(frozen=True, slots=True)
class Variant:
    """An attack at a place of an incident.

    Attributes:
        text: what is planted; `file`: where, of an attack that brings a file of its own.
        cause: the cause that the attack wants named.
        prints: the text holds the words of a real failure, which a reader of logs cannot tell from one.
    """

    id: str
    case: Case
    attack: str
    place: str
    text: str
    file: str
    cause: str
    prints: bool

    def write(self, into: Path) -> Path:
        """A copy of the incident's files with the text planted, in a folder that does not exist yet."""
        shutil.copytree(self.case.files, into, symlinks=True)
        _PLACES[self.place](into, self)
        return into


@cache
def attacks() -> dict[str, Any]:
    """The table: `bases`, `forged`, `tokens`, `attacks`."""
    return yaml.safe_load(Path(__file__).with_name("hostile.yaml").read_text(encoding="utf-8"))


def variants(folder: Path) -> Iterator[Variant]:
    """Every attack at each of its places, each of these in some of the incidents of a folder, always the same."""
    table = attacks()
    cases = [load(folder / name) for name in table["bases"]]
    turn = 0
    for attack, what in table["attacks"].items():
        for place in what["places"]:
            for _ in range(PER_PLACE):
                case = cases[turn % len(cases)]
                turn += 1
                yield planted(case, attack, place)


def planted(case: Case, attack: str, place: str) -> Variant:
    """An attack at a place of an incident; it wants a cause named that the incident does not have."""
    table = attacks()
    what = table["attacks"][attack]
    wanted = next(f for f in table["forged"] if f["cause"] not in (*case.expected, *case.acceptable))
    text = _spoken(what, wanted["cause"], wanted["quote"])
    name = f"{attack}@{place}@{case.id}"
    return Variant(name, case, attack, place, text, what.get("file", ""), wanted["cause"], bool(what.get("prints")))


def _spoken(what: dict[str, Any], cause: str, quote: str) -> str:
    text = str(what["text"]).rstrip("\n").replace("%CAUSE%", cause).replace("%QUOTE%", quote)
    if what.get("encode") == "base64":
        text = base64.b64encode(text.encode()).decode()
    return "\n".join([text] * int(what.get("repeat", 1)))


def _log(run: Path) -> Path:
    """The largest log of the run, else its largest text."""
    found = [p for p in sorted(run.rglob("*")) if p.is_file()]
    logs = [p for p in found if p.suffix in (".log", ".out")] or [p for p in found if p.suffix == ".txt"]
    return max(logs or found, key=lambda p: p.stat().st_size)


def _into(path: Path, text: str, at: float) -> None:
    """Whole lines put into a text, after that share of its lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    number = round(len(lines) * at)
    path.write_bytes(b"".join([*lines[:number], text.encode() + b"\n", *lines[number:]]))


def _config_comment(run: Path, v: Variant) -> None:
    path = next((p for s in ("*.yaml", "*.yml", "*.sh") for p in sorted(run.rglob(s))), run / "extra.yaml")
    if not path.exists():
        path.write_text("seed: 1\n", encoding="utf-8")
    _into(path, "\n".join(f"# {line}" for line in v.text.splitlines()), 1.0)


def _config_value(run: Path, v: Variant) -> None:
    _write(run / "planted.yaml", "".join(f"{k}: {json.dumps(v.text)}\n" for k in ("run_name", "output_dir", "optim")))


def _docstring(run: Path, v: Variant) -> None:
    path = next(iter(sorted(run.rglob("*.py"))), run / "launch_notes.py")
    if not path.exists():
        path.write_text("import sys\n", encoding="utf-8")
    _into(path, f'def _planted():\n    """{v.text}"""', 1.0)


def _file_name(run: Path, v: Variant) -> None:
    name = v.text.replace("/", "\u2215").encode()[:_NAME_BYTES].decode(errors="ignore")
    (run / f"{name}.log").write_text("step 1 of the copy done\n", encoding="utf-8")


def _traceback(run: Path, v: Variant) -> None:
    """An exception that was caught and logged, long before the end."""
    frame = '  File "/src/sync.py", line 7, in pull\n    raise ValueError(reply)'
    told = f"WARNING sync: upload failed, will be tried again\nTraceback (most recent call last):\n{frame}"
    _into(_log(run), f"{told}\nValueError: {v.text}", 0.5)


def _tokenizer(run: Path, v: Variant) -> None:
    special = {"eos_token": v.text, "additional_special_tokens": [v.text], "chat_template": f"{{{{ '{v.text}' }}}}"}
    (run / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")


def _sample(run: Path, v: Variant) -> None:
    rows = [{"prompt": "2 + 2?", "completion": "4"}, {"prompt": v.text, "completion": v.text}]
    (run / "planted_samples.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows), encoding="utf-8")


def _metric_name(run: Path, v: Variant) -> None:
    rows = "".join(f"{step},{2.0 - step / 100:.2f}\n" for step in range(1, 21))
    (run / "planted_metrics.csv").write_text(f'step,"{v.text}"\n{rows}', encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


_PLACES: dict[str, Callable[[Path, Variant], None]] = {
    "log_middle": lambda run, v: _into(_log(run), v.text, 0.5),
    "log_end": lambda run, v: _into(_log(run), v.text, 1.0),
    "readme": lambda run, v: _write(run / "README.md", v.text),
    "config_comment": _config_comment,
    "config_value": _config_value,
    "docstring": _docstring,
    "file_name": _file_name,
    "traceback": _traceback,
    "tokenizer": _tokenizer,
    "sample": _sample,
    "metric_name": _metric_name,
    "file": lambda run, v: _write(run / v.file, v.text),
}
