"""What a launch script would start: bash runs it with no program in reach, and every command is written down instead."""

from __future__ import annotations

import difflib
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from traindoctor.agent.reading.settings.settings_map import settings_map

_PRELUDE = r"""
trap wait EXIT
trap '' PIPE
source() { :; }
cd() { :; }
.() { :; }
module() { :; }
command_not_found_handle() {
  local i text= inner= had=
  local -a kept=()
  if [ "$1" = cat ]; then while IFS= read -r i; do printf '%s\n' "$i"; done; return 0; fi
  for ((i = 1; i <= $#; i++)); do
    case "${!i}" in
      --wrap=*) inner="${!i#--wrap=}"; had=1; continue ;;
      bash | sh) local j=$((i + 1)); if [[ "${!j-}" == -*c ]]; then j=$((i + 2)); inner="${!j}"; had=1; break; fi ;;
    esac
    kept+=("${!i}")
  done
  if [ "$1" = ssh ]; then inner="${!#}"; had=1; kept=("${@:1:$#-1}"); fi
  for i in "${kept[@]}"; do text+="$i"$'\x1f'; done
  printf '%s\x1d%s\x1e' "$text" "$(declare -px)" > "$RECORD_OF_COMMANDS/$BASHPID.$RANDOM"
  if [ -n "$had" ]; then eval "$inner"; fi
  return 0
}
"""
_EXPORTED = re.compile(r'^declare -\w*x\w* (\w+)="((?:[^"\\]|\\.)*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Started:
    """One command with its words and the environment that it gets."""

    words: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Ran:
    """Everything that a script did: the commands in a stable order, and the files that it wrote."""

    started: tuple[Started, ...]
    files: dict[str, str]


def accepts(text: str) -> bool:
    """Whether bash takes the script's syntax."""
    return subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False).returncode == 0


def run(text: str) -> Ran:
    """Run a script of the collection; nothing outside a fresh folder is touched, since no program can be found."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        work = here / "work"
        work.mkdir()
        (here / "record").mkdir()
        (here / "prelude").write_text(_PRELUDE, encoding="utf-8")
        (here / "script").write_bytes(text.encode())
        environment = {
            "PATH": "/nonexistent", "HOME": "/home/u", "BASH_ENV": str(here / "prelude"),
            "RECORD_OF_COMMANDS": str(here / "record"), "SLURM_NNODES": "4", "SLURM_JOB_NUM_NODES": "1",
        }  # fmt: skip
        command = ["/bin/bash", "../script"]
        subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=20, check=False)
        record = "".join(p.read_text("utf-8") for p in (here / "record").iterdir()).replace(folder, "/here")
        files = {p.name: p.read_text("utf-8") for p in sorted(work.rglob("*")) if p.is_file() and p.name != "pid"}
    started = []
    for each in record.split("\x1e")[:-1]:
        words, _, exported = each.partition("\x1d")
        seen = {m[1]: m[2] for m in _EXPORTED.finditer(exported)}
        kept = {k: v for k, v in seen.items() if k not in (*environment, "PWD", "OLDPWD", "SHLVL", "_")}
        started.append(Started(tuple(words.split("\x1f")[:-1]), kept))
    return Ran(tuple(sorted(started, key=lambda s: (s.words[:1], s.words))), files)


def names_of(word: str, framework: str) -> str:
    """The canonical setting of a flag or an override; empty for other words."""
    flag = re.match(r"(?:--?|\+{0,2})[A-Za-z_][\w.\-/]*(?:=|\Z)", word)
    if not flag or (word[:1] not in "-+" and "=" not in word):
        return ""
    key = word.partition("=")[0].lstrip("-+")
    scopes = ("env",) if key.isupper() else (framework, "launcher", "slurm")
    for scope in scopes:
        if found := settings_map().resolve(scope, key):
            return found[0].name
        if key[:3] in ("no-", "no_") and (found := settings_map().resolve(scope, key[3:])):
            return found[0].name
    return ""


def differences(before: Ran, after: Ran) -> list[tuple[Started, list[str], list[str], str]]:
    """Words that differ: the command, the old words, the new ones, and the word before them."""
    assert len(before.started) == len(after.started), (before.started, after.started)
    out = []
    for old, new in zip(before.started, after.started, strict=True):
        steps = difflib.SequenceMatcher(None, old.words, new.words, autojunk=False).get_opcodes()
        for tag, a, b, c, d in steps:
            if tag != "equal":
                out.append((old, list(old.words[a:b]), list(new.words[c:d]), old.words[a - 1] if a else ""))
    return out
