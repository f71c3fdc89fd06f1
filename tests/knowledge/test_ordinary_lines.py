"""What proves nothing fires no signature: sound runs, source code, documents, prose, data, settings and questions.

`ordinary/` holds our own corpus. Beside it stand the recorded sound runs and, as ordinary code and documents, what is
installed: the code of the training libraries without what it prints (that text is what signatures are made of), and
the descriptions and licences of packages.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE, Playbook, read_folder
from traindoctor.agent.reading.scan.logpass import WHOLE, read_stretch, signature_patterns
from traindoctor.agent.reading.scan.patterns import scanner

HERE = Path(__file__).parent
SOUND = HERE.parents[1] / "evals/healthy"
LOGS = {".log", ".txt", ".out", ".err", ".csv", ".yaml", ".json"}
LARGEST = 1 << 20  # bytes of a file of a sound run

# Circumstances of sound runs that one failure mode is recognised by together with another fact, which its playbook asks
# for under `requires` or `any_of`. In `any_of` the signature must be weak: a weak one does not stand for a fact.
COMPANIONS = {
    "sig.dist.timeout_long_preparation": "watchdog.first_collective",
    "sig.moe.aux_loss_not_requested": "aux_loss.zero",
    "sig.speed.cpu_bottleneck": "lint.dataloader_workers_over_cpus",
}

PACKAGES = ("torch", "transformers", "lightning", "accelerate")
EACH = 150  # files of each package, spread evenly
_QUOTES_AN_ERROR = re.compile(r"\w(Error|Exception)\b|(CUDA|HIP) error")
_FAILED_FIRST = {"maple"}  # a sound run whose first attempt fails: its lines are of a failure


@cache
def known() -> list[Playbook]:
    return read_folder(KNOWLEDGE)


def fired(paths: list[Path]) -> dict[str, list[str]]:
    """Key of each signature's playbook -> what it fired on, read as the log pass reads."""
    patterns = signature_patterns(known())
    scan = scanner(patterns)
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        harvest, _ = read_stretch(path, patterns, scan, 0, WHOLE, lambda _: None, lambda stream: stream)
        for (index, _), slot in harvest.slots.items():
            pattern, line = patterns[index], slot.kept[0]
            found[pattern.name].append(
                f"{path.name}:{line.number}: {pattern.regex} | {line.data.decode(errors='replace')[:160]}"
            )
    return found


def unexplained(paths: list[Path]) -> list[str]:
    assert len(paths) > 5
    return [line for key, lines in fired(paths).items() if key not in COMPANIONS for line in lines]


def test_our_corpus_fires_nothing() -> None:
    assert unexplained(sorted((HERE / "ordinary").iterdir())) == []


def test_sound_runs_fire_nothing() -> None:
    runs = [run for run in sorted(SOUND.glob("*/files")) if run.parent.name not in _FAILED_FIRST]
    files = [f for run in runs for f in sorted(run.rglob("*")) if f.is_file() and f.suffix in LOGS]
    assert unexplained([f for f in files if f.stat().st_size < LARGEST]) == []


def test_ordinary_code_fires_nothing(tmp_path: Path) -> None:
    """A comment that quotes an error is in the words of a failure, and is passed over; who wrote it is told by others."""
    home = _installed()
    paths = []
    for package in PACKAGES:
        files = [f for f in sorted((home / package).rglob("*.py")) if not re.search(r"test", str(f.relative_to(home)))]
        for file in files[:: max(len(files) // EACH, 1)]:
            paths.append(tmp_path / f"{package}-{len(paths)}-{file.stem}.txt")
            paths[-1].write_text(unprinted(file.read_text(encoding="utf-8", errors="replace")), encoding="utf-8")
    assert unexplained(paths) == []


def test_documents_of_packages_fire_nothing(tmp_path: Path) -> None:
    """Descriptions and licences; what they show as code or as output is left out."""
    paths = []
    for info in sorted(_installed().glob("*.dist-info")):
        found = [f for f in sorted(info.rglob("*")) if f.name == "METADATA" or "LICENSE" in f.name.upper()]
        texts = [f for f in found if f.is_file()]
        for file in texts if not info.name.startswith("traindoctor") else ():
            paths.append(tmp_path / f"{info.name}-{len(paths)}.txt")
            text = re.sub(r"(?ms)^ *```.*?^ *```", "", file.read_text(encoding="utf-8", errors="replace"))
            paths[-1].write_text(re.sub(r"(?m)^(?: {4}|\t).*$", "", text), encoding="utf-8")
    assert unexplained(paths) == []


@pytest.mark.parametrize("key", COMPANIONS)
def test_a_circumstance_needs_its_companion(key: str) -> None:
    book = next(p for p in known() if p.key == key)
    companion = COMPANIONS[key]
    in_any = companion in {q.key for q in book.any_of}
    assert in_any or companion in {q.key for q in book.requires}
    files = [*sorted((HERE / "ordinary").iterdir())]
    assert key in fired(files), "it fires on nothing ordinary any more: take it from the list"
    if in_any:
        usable = [s for s in book.signatures if not s.harmless]
        ordinary = [s for s in usable if any(s.compiled.search(line) for f in files for line in _lines(f))]
        assert {s.weight for s in ordinary} == {"weak"} and not any(s.decisive for s in ordinary)


def test_notices_of_libraries_are_harmless_at_most() -> None:
    notices = yaml.safe_load((HERE / "notices.yaml").read_text(encoding="utf-8"))
    loud = [
        (book.slug, notice)
        for book in known()
        for signature in book.signatures
        for notice in notices
        if not signature.harmless and book.key not in COMPANIONS and signature.compiled.search(notice)
    ]
    assert loud == []


def _lines(file: Path) -> Iterator[str]:
    yield from file.read_text(encoding="utf-8", errors="replace").splitlines()


def _installed() -> Path:
    """The folder of the installed packages."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


def unprinted(source: str) -> str:
    """Source code with its comments and docstrings, without the texts it prints."""
    lines = source.split("\n")
    before = tokenize.NEWLINE
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                if _QUOTES_AN_ERROR.search(token.string):
                    _blank(lines, token)
                continue
            at_start = depth == 0 and before in (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE, tokenize.NL)
            if token.type == tokenize.STRING and not at_start:
                _blank(lines, token)
            elif token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            before = token.type
    except (tokenize.TokenError, SyntaxError):
        return ""
    return "\n".join(line for line in lines if not _QUOTED_IN_PROSE.search(line))


_QUOTED_IN_PROSE = re.compile(r"[`'\"][^`'\"]*(Error: |CUDA error|forked subprocess)")


def _blank(lines: list[str], token: tokenize.TokenInfo) -> None:
    (first, start), (last, stop) = token.start, token.end
    if first == last:
        lines[first - 1] = lines[first - 1][:start] + " " * (stop - start) + lines[first - 1][stop:]
        return
    lines[first - 1] = lines[first - 1][:start]
    for between in range(first, last - 1):
        lines[between] = ""
    lines[last - 1] = " " * stop + lines[last - 1][stop:]
