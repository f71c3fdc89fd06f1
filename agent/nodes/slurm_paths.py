"""Where a Slurm job's output goes: options of sbatch and srun, and the patterns in them (`%j`, `%x`, `%A_%a`)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

_NAMES = {"-o": "out", "--output": "out", "-e": "err", "--error": "err"}
# Options of sbatch that stand alone; every other one takes the word behind it, where it is not joined by `=`.
_ALONE = frozenset(
    (
        "--parsable",
        "--hold",
        "-H",
        "--requeue",
        "--no-requeue",
        "--exclusive",
        "--wait",
        "--overcommit",
        "-O",
        "-Q",
        "--contiguous",
        "--spread-job",
        "--test-only",
        "--verbose",
        "-v",
        "--quiet",
        "--oversubscribe",
        "-s",
        "--reboot",
        "--use-min-nodes",
        "--ignore-pbs",
        "-k",
        "--no-kill",
        "-l",
        "--label",
        "-u",
        "--unbuffered",
        "-K",
        "--overlap",
        "--pty",
        "--kill-on-bad-exit",
        "--exact",
        "--kill-on-invalid-dep",
        "--multi-prog",
    )
)
_PATTERN = re.compile(r"%(?P<width>\d*)(?P<what>[%AaJjNnstux])")
_JOB_VARIABLE = re.compile(r"\$\{?SLURM_JOB_?ID\}?")
_OTHER_VARIABLE = re.compile(r"\$\{?\w+\}?|\$\([^)]*\)")
_DIRECTIVE = re.compile(r"^#SBATCH\s+(?P<options>.+)$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n\s*")
_SRUN = re.compile(r"(?:^|[\s;&|(])srun\s+(?P<rest>[^\n;&|]+)")


def asked_of(submitted: str, script: str) -> list[str]:
    """Patterns of output and error of a batch job: the command line's win over the script's, else Slurm's default."""
    chosen: dict[str, str] = {}
    for match in _DIRECTIVE.finditer(script[: 256 << 10]):
        chosen |= dict(_options(_words(match["options"].split(" #")[0])))
    if "sbatch" in submitted:
        chosen |= dict(_options(_words(submitted)[1:]))
    return list(dict.fromkeys([chosen.get("out", ""), *([chosen["err"]] if "err" in chosen else [])]))


def patterns_of(script: str) -> list[str]:
    """Patterns of output that the script's own `srun` lines name, those of every rank too."""
    body = _CONTINUED.sub(" ", script[: 256 << 10])
    lines = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("#"))
    found = [value for m in _SRUN.finditer(lines) for _, value in _options(_words(m["rest"]))]
    return [p for p in dict.fromkeys(found) if p not in ("none", "all") and not p.isdigit()]


def resolved(pattern: str, row: Mapping[str, str]) -> str:
    """A pattern with what is known of the job put in, and `*` for what differs by node, task or step.

    Args:
        row: fields of sacct: jobid, jobidraw, jobname, user.
    """
    number = row.get("jobid", "")
    array, _, index = number.partition("_")
    raw = row.get("jobidraw") or number
    if not pattern:
        pattern = "slurm-%A_%a.out" if index else "slurm-%j.out"
    known = {"A": array.partition("+")[0], "a": index or "4294967294", "j": raw, "x": row.get("jobname", ""),
             "u": row.get("user", ""), "J": f"{raw}.*"}  # fmt: skip
    known |= dict.fromkeys("Nnst", "*") | {"%": "%"}

    def put(match: re.Match[str]) -> str:
        value = known[match["what"]]
        return value.zfill(int(match["width"] or 0)) if value.isdigit() else value

    named = _JOB_VARIABLE.sub(raw, pattern)
    tells_job = named != pattern or re.search(r"%\d*[jJA]", pattern)
    if _OTHER_VARIABLE.search(named):
        if not tells_job:  # a star in place of it would catch the files of other jobs
            return ""
        named = _OTHER_VARIABLE.sub("*", named)
    return _PATTERN.sub(put, named)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that never closes
        return text.split()


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Output and error as `(out|err, value)`; ends at the script or program, whose words are its own."""
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            return
        if word[:2] in ("-o", "-e") and len(word) > 2 and word[1] != "-":
            yield _NAMES[word[:2]], word[2:]
        elif name in _NAMES:
            at += not equals
            if equals or at < len(words):
                yield _NAMES[name], value if equals else words[at]
        elif not equals and word not in _ALONE and (word.startswith("--") or len(word) == 2):
            at += 1
        at += 1
