"""Carry out the recipes of evals/checkouts: runs in whole checkouts of public projects, as their users have them.

`checkout.py [RECIPE ...] [--mirror DIR] [--into DIR] [--labels]`; without a recipe all of them, `make checkouts`. With
--labels nothing is run: the labels of what was made before are written anew. A recipe names a repository and a commit,
our edits of single lines, files of our own, and the commands that a user types; what is made is an incident whose
files/ are the checkout with what the run left in it. Nothing of a project is kept in this one. The interpreter that
runs this file runs the programs too; evals/checkouts/requirements.txt says what they need.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from os import killpg
from pathlib import Path
from typing import Any

import yaml
from carry import FOLDER, HOST, environment, lacking, neutral, private_view, rewritten

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "evals" / "checkouts"
PUBLIC = "https://github.com/{}.git"
LAID_BYTES = 4_000_000  # a file of the project that is larger is left out: some copies of a repository lack those
KEPT_BYTES = 2_000_000  # of one file, unless the recipe asks for it
LEFT = re.compile(r"(^|/)(\.git|__pycache__|\.cache|\.config|\.matplotlib|home|tmp)(/|$)|\.pyc$")


@dataclass
class Recipe:
    """One run in a checkout; CONTRIBUTING.md says what each key means."""

    id: str
    repository: str  # owner/name
    commit: str
    train: str
    labels: dict[str, Any]
    facts: list[dict[str, str]]
    prepare: str = ""
    edits: list[dict[str, Any]] = field(default_factory=list)
    adds: dict[str, str] = field(default_factory=dict)
    removes: str = ""  # what of the checkout is not laid out: a pattern of paths
    ends: list[int] = field(default_factory=lambda: [0])
    shows: dict[str, str] = field(default_factory=dict)
    keeps: str = ""  # kept in spite of its size
    drops: str = ""
    limit: float = 300.0


def read(path: Path) -> Recipe:
    """A recipe from its file; an unknown key is a TypeError that names it."""
    row: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    ends = row.pop("ends", 0)
    return Recipe(ends=ends if isinstance(ends, list) else [ends], **row)


def repository(name: str, mirror: Path | None, scratch: Path) -> Path:
    """The git directory of a repository: the mirror's, or a clone of the public one.

    Raises:
        FileNotFoundError: the mirror has none of that name.
        subprocess.CalledProcessError: it could not be cloned.
    """
    if mirror is None:
        subprocess.run(["git", "clone", "-q", "--bare", PUBLIC.format(name), str(scratch)], check=True)
        return scratch
    at = mirror / name.replace("/", "+")
    for place in (at / "repo" / ".git", at / "repo", at / ".git", at):
        if (place / "HEAD").is_file():
            return place
    raise FileNotFoundError(f"no git directory of {name} in {mirror}")


def lay_out(recipe: Recipe, git: Path, work: Path) -> None:
    """Write the commit's files, our edits and our own files into `work`.

    Raises:
        ValueError: the repository lacks the commit, or an edit does not fit.
    """
    for mode, blob, name in _tree(git, recipe.commit):
        if recipe.removes and re.search(recipe.removes, name):
            continue
        said = subprocess.run(["git", f"--git-dir={git}", "cat-file", "blob", blob], capture_output=True, check=False)
        if said.returncode or len(said.stdout) > LAID_BYTES:
            continue
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(said.stdout)
        path.chmod(0o755 if mode == "100755" else 0o644)
    for name in dict.fromkeys(edit["file"] for edit in recipe.edits):
        text = (work / name).read_text(encoding="utf-8")
        (work / name).write_text(edited(text, [e for e in recipe.edits if e["file"] == name]), encoding="utf-8")
    for name, text in recipe.adds.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    (work / "home").mkdir()


def _tree(git: Path, commit: str) -> list[tuple[str, str, str]]:
    """Mode, blob and path of each plain file of a commit."""
    said = subprocess.run(
        ["git", f"--git-dir={git}", "ls-tree", "-rz", commit], capture_output=True, text=True, check=False
    )
    if said.returncode:
        raise ValueError(f"no commit {commit} in {git}: {said.stderr.strip()}")
    rows = [row.partition("\t") for row in said.stdout.split("\0") if row]
    return [(mode, blob, name) for head, _, name in rows for mode, kind, blob in [head.split()] if kind == "blob"]


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """A text with a stretch of one line replaced by each edit, whose `put` may have several lines.

    The line is the edit's `line`, from 1 as the project has it, or the only one that has its `find`.

    Raises:
        ValueError: no such stretch in that line, or several that have it.
    """
    lines = text.split("\n")
    for edit in edits:
        numbers = [n for n, line in enumerate(lines) if edit["find"] in line and edit.get("line", n + 1) == n + 1]
        if len(numbers) != 1 or lines[numbers[0]].count(edit["find"]) != 1:
            raise ValueError(f"{edit['file']}: {edit['find']!r} is not once in one line")
        lines[numbers[0]] = lines[numbers[0]].replace(edit["find"], edit["put"])
    return "\n".join(lines)


def carry_out(commands: str, work: Path, limit: float) -> int:
    """Run commands in `work` as a shell does; the exit status of the last, 124 where it took longer than `limit`."""
    inside, argv = private_view(work, ["bash", "-c", commands])
    env = environment(inside, commands) | {"MPLCONFIGDIR": f"{inside}/home", "MPLBACKEND": "agg"}
    job = subprocess.Popen(
        argv, cwd=work, env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        said = job.communicate(timeout=limit)[1].decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        killpg(job.pid, signal.SIGKILL)
        job.communicate()
        return 124
    if said:
        print("  | " + said[-2000:].replace("\n", "\n  | "), file=sys.stderr)  # noqa: T201
    return job.returncode


def keep(recipe: Recipe, work: Path, files: Path) -> int:
    """Copy the checkout with what the run left into files/, which is emptied first; the bytes kept."""
    shutil.rmtree(files, ignore_errors=True)
    here = socket.gethostname()
    own = f"/data/{recipe.repository.partition('/')[2]}".encode()
    pairs = [(old, own if new == FOLDER.encode() else new) for old, new in neutral(work, work)]
    size = 0
    for path in sorted(p for p in work.rglob("*") if p.is_file()):
        name = path.relative_to(work).as_posix()
        large = path.stat().st_size > KEPT_BYTES and not (recipe.keeps and re.search(recipe.keeps, name))
        if large or LEFT.search(name) or (recipe.drops and re.search(recipe.drops, name)):
            continue
        place = files / (name.replace(here, HOST) if len(here) > 3 else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            if not path.readlink().is_absolute():
                place.symlink_to(path.readlink())
            continue
        place.write_bytes(rewritten(path.read_bytes(), pairs))
        place.chmod(path.stat().st_mode & 0o777)
        size += place.stat().st_size
    return size


def make(recipe: Recipe, mirror: Path | None, home: Path) -> str:
    """Make one incident; what is wrong with it, in words, or nothing."""
    with tempfile.TemporaryDirectory(prefix="checkout-") as scratch:
        work = Path(scratch) / "run"
        work.mkdir()
        try:
            lay_out(recipe, repository(recipe.repository, mirror, Path(scratch) / "git"), work)
        except (OSError, ValueError, subprocess.CalledProcessError) as e:
            return str(e)
        if recipe.prepare and (status := carry_out("set -e\n" + recipe.prepare, work, recipe.limit)):
            return f"what comes before the run ended with {status}"
        began = time.monotonic()
        status = carry_out(recipe.train, work, recipe.limit)
        seconds = time.monotonic() - began
        size = keep(recipe, work, home / "files")
    print(f"{recipe.id}: exit {status}, {seconds:.0f} s, {size / 1e6:.1f} MB", file=sys.stderr, flush=True)  # noqa: T201
    untold = label(recipe, home)
    return untold if status in recipe.ends else f"ended with {status}, not {recipe.ends}"


def label(recipe: Recipe, home: Path) -> str:
    """Write the incident's labels, facts among them; which of their lines are not in its files, in words.

    `*` in the name of a file stands for what changes from run to run; the last that fits is meant.
    """
    facts = [fact | {"file": _named(home / "files", fact["file"])} for fact in recipe.facts]
    evidence = [mark | {"file": _named(home / "files", mark["file"])} for mark in recipe.labels.get("evidence", ())]
    source = f"recipe: {recipe.repository}@{recipe.commit[:12]}"
    labels = {"id": recipe.id, "source": source, **recipe.labels, "evidence": evidence, "facts": facts}
    text = yaml.safe_dump(labels, sort_keys=False, width=120, allow_unicode=True)
    (home / "incident.yaml").write_text(text, encoding="utf-8")
    lost = [m for m in [*evidence, *facts] if m["text"] not in _text(home / "files" / m["file"])]
    missing = lacking(recipe.shows, home / "files")
    return "; ".join([*(f"lacks {m}" for m in missing), *(f"no line {m['text']!r} in {m['file']}" for m in lost)])


def _named(files: Path, name: str) -> str:
    found = sorted(p.relative_to(files).as_posix() for p in files.glob(name)) if "*" in name else []
    return found[-1] if found else name


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def main(argv: list[str]) -> int:
    """Make the asked incidents; 1 where one did not come out as its recipe says, 2 where none can be begun with."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("recipes", nargs="*", help="ids of recipes, or files; all of evals/checkouts")
    parser.add_argument("--mirror", type=Path, help="a folder of git directories, each OWNER+NAME")
    parser.add_argument("--labels", action="store_true", help="only write the labels of what was made before anew")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "checkouts")
    asked = parser.parse_args(argv)
    paths = [Path(r) if r.endswith(".yaml") else RECIPES / f"{r}.yaml" for r in asked.recipes]
    if lost := [str(p) for p in paths if not p.is_file()]:
        print(f"no such recipe: {', '.join(lost)}", file=sys.stderr)  # noqa: T201
        return 2
    failed = False
    for path in paths or sorted(RECIPES.glob("*.yaml")):
        recipe = read(path)
        home = asked.into / recipe.id
        if asked.labels and not (home / "files").is_dir():
            continue
        if trouble := label(recipe, home) if asked.labels else make(recipe, asked.mirror, home):
            failed = True
            print(f"  ! {recipe.id}: {trouble}", file=sys.stderr, flush=True)  # noqa: T201
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
