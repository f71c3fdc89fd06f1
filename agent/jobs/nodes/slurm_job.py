"""One job as Slurm remembers it: who, where, how it ended, and which files it wrote.

scontrol knows paths while the job is remembered (some minutes after its end); the accounting keeps the command line of
its submission, from which they are worked out afterwards.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...core.errors import UsageError
from ...core.shell import Completed, Shell
from .slurm_nodes import SECONDS, SlurmShell

# ----------
# Where a Slurm job's output goes: options of sbatch and srun, and the patterns in them (`%j`, `%x`, `%A_%a`).


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


# ----------

JOB = re.compile(r"\d{1,10}(?:_\d{1,7}|\+\d{1,5})?")
# Newer releases keep more; the first list that sacct accepts is taken. SubmitLine: 21.08, StdOut: 24.05.
SHOWN = "JobID,JobIDRaw,JobName,User,State,ExitCode,DerivedExitCode,Elapsed,Timelimit,MaxRSS,ReqMem,NodeList,Reason"
_FIELDS = (f"{SHOWN},Start,End,WorkDir,SubmitLine,StdOut,StdErr", f"{SHOWN},Start,End,WorkDir,SubmitLine")
_FIELDS += (f"{SHOWN},Start,End,WorkDir", f"{SHOWN},Start,End")
_PLACES = re.compile(r"^\s+(Command|WorkDir|StdErr|StdOut)=(.*)$", re.MULTILINE)
_GOING = ("PENDING", "CONFIGURING", "RUNNING")
_TASKS = 8  # of an array that are looked at, those that failed first


@dataclass(slots=True)
class SlurmJob:
    """What Slurm told. Paths are absolute and need not exist; `told` maps a file name to a recorded answer."""

    id: str
    state: str = ""
    user: str = ""
    nodes: str = ""  # as Slurm writes lists: n[1-3]
    again: bool = False  # it was put back into the queue, and waits or runs once more
    began: str = ""
    ended: str = ""
    folder: Path | None = None
    script: str = ""  # the batch script's text
    outputs: list[Path] = field(default_factory=list)  # what stands where Slurm puts the job's output
    patterns: list[str] = field(default_factory=list)  # globs of what its steps wrote
    told: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.state in ("RUNNING", "COMPLETING", "SUSPENDED")


def job_of(number: str, shell: Shell | None = None) -> SlurmJob:
    """Ask Slurm about a job.

    Raises:
        UsageError: no such job, Slurm is not installed here, or it does not answer.
    """
    if not JOB.fullmatch(number):
        raise UsageError(f"{number!r} is no Slurm job id", "name one, such as 4711, 4711_3 or 4711+1")
    ask = shell or SlurmShell()
    accounts = _accounts(ask, number)
    shown = ask.run(["scontrol", "show", "job", number], SECONDS)
    rows = _rows(accounts.stdout) if accounts.code == 0 else []
    remembered = shown.code == 0 and "JobId=" in shown.stdout
    if not rows and not remembered:
        raise _unknown(number, accounts, shown)
    job = SlurmJob(number)
    if rows:
        job.told["sacct.txt"] = accounts.stdout
    else:
        why = _why(accounts) or "it knows no such job"
        job.notes.append(f"Slurm's accounting said nothing ({why}): only what the controller remembers is known")
    _from_accounts(job, [r for r in rows if "." not in r["jobid"]])
    # A job that fails within its first second has its first node alone there, and the controller shows those that have
    # not ended yet: its steps know all of them.
    known = [r.get("nodelist", "") for r in rows]
    if remembered:
        job.told["scontrol-job.txt"] = shown.stdout
        _from_controller(job, shown.stdout)
    elif shown.code is None and rows:
        job.notes.append(f"Slurm's controller said nothing ({_why(shown)}): what the accounting knows is all there is")
    job.nodes = ",".join(dict.fromkeys(n for n in [*job.nodes.split(";"), *known] if n and n != "None assigned"))
    _script(job, ask, number)
    _written(job, rows, remembered)
    _node_states(job, ask)
    return job


def _accounts(ask: Shell, number: str) -> Completed:
    done = Completed((), None, "")
    for fields in _FIELDS:
        done = ask.run(["sacct", "-P", "-D", "-j", number, "-o", fields], SECONDS)
        if "nvalid field" not in done.stderr:
            break
    return done


def _rows(text: str) -> list[dict[str, str]]:
    lines = text.splitlines()
    header = lines[0].lower().split("|") if lines else []
    cells = (line.split("|", len(header) - 1) for line in lines[1:])
    return [dict(zip(header, c, strict=True)) for c in cells if len(c) == len(header)]


def _unknown(number: str, accounts: Completed, shown: Completed) -> UsageError:
    said = [_why(accounts), _why(shown)]
    if all("not installed" in s for s in said):
        return UsageError(
            "Slurm is not installed here", "run this on a login node, or name the log: doctor triage PATH"
        )
    if "nvalid job id" not in said[1]:
        why = next((s for s in reversed(said) if s and "not installed" not in s), "no answer")
        return UsageError(f"Slurm does not answer: {why}", "try again later, or name the log: doctor triage PATH")
    return UsageError(f"Slurm knows no job {number} (or does not show it to you)", "look at `sacct -X` or `squeue`")


def _why(done: Completed) -> str:
    said = [line for line in done.stderr.strip().splitlines() if line]
    return said[-1].removeprefix(f"{done.argv[0]}: ")[:200] if said and done.argv else ""


def _from_accounts(job: SlurmJob, rows: list[dict[str, str]]) -> None:
    if not rows:
        return
    last = list({r["jobid"]: r for r in rows}.values())  # a job that was put back into the queue has several records
    worst = next((r for r in last if r["state"].split(" ")[0] not in ("COMPLETED", "RUNNING", "PENDING")), last[-1])
    job.state = worst["state"].split(" ")[0].rstrip("+")
    job.again = len(last) < len(rows) and job.state in _GOING
    job.user, job.began, job.ended = worst.get("user", ""), worst.get("start", ""), worst.get("end", "")
    named = [r["nodelist"] for r in rows if r.get("nodelist") and r["nodelist"] != "None assigned"]
    job.nodes = ",".join(dict.fromkeys(named))
    if folder := worst.get("workdir"):
        job.folder = Path(folder)


def _from_controller(job: SlurmJob, text: str) -> None:
    first = text.strip().split("\n\n")[0]
    fields = dict(re.findall(r"(?:^|\s)(JobState|UserId|StartTime|EndTime)=(\S+)", first))
    job.again |= bool(job.state) and job.state not in _GOING and fields.get("JobState", "") in _GOING
    job.state = job.state or fields.get("JobState", "")
    job.user = job.user or fields.get("UserId", "").partition("(")[0]
    job.began, job.ended = job.began or fields.get("StartTime", ""), job.ended or fields.get("EndTime", "")
    listed = re.findall(r"^\s+NodeList=(\S+)", text, re.MULTILINE)
    job.nodes = ",".join(n for n in dict.fromkeys(listed) if n != "(null)") or job.nodes
    places = dict(_PLACES.findall(first))
    if folder := places.get("WorkDir"):
        job.folder = Path(folder)


def _script(job: SlurmJob, ask: Shell, number: str) -> None:
    """The batch script: the controller's copy, else the accounting's (kept where the site asked for it)."""
    done = ask.run(["scontrol", "write", "batch_script", number, "-"], SECONDS)
    if done.code != 0 or not done.stdout.startswith("#!"):
        done = ask.run(["sacct", "-B", "-j", number], SECONDS)
    at = done.stdout.find("#!")
    if done.code == 0 and 0 <= at < 200:
        job.script = done.stdout[at:]
        job.told["job.sbatch"] = job.script


def _written(job: SlurmJob, rows: list[dict[str, str]], remembered: bool) -> None:
    """Where output went, by whoever knows: the controller, newer accounting, else options and Slurm's defaults."""
    found: list[str] = []
    if remembered:
        for part in job.told["scontrol-job.txt"].strip().split("\n\n"):
            places = dict(_PLACES.findall(part))
            found += [p for name in ("StdOut", "StdErr") if (p := places.get(name))]
    jobs = [r for r in rows if "." not in r["jobid"]]
    bad = sorted(jobs, key=lambda r: r["state"].startswith(("COMPLETED", "PENDING")))[:_TASKS]
    if len(jobs) > len(bad):
        job.notes.append(f"{len(jobs)} tasks of the array are known: {len(bad)} are looked at, failed ones first")
    for row in bad:
        asked = [row.get("stdout", ""), row.get("stderr", "")]
        asked = [a for a in asked if a] or asked_of(row.get("submitline", ""), job.script)
        # The accounting may hear of a job's name and folder after its end: the controller's word is better.
        found += [resolved(pattern, row) for pattern in asked] if not remembered else []
        job.patterns += [resolved(pattern, row) for pattern in patterns_of(job.script)]
    folder = job.folder or Path()
    for name in dict.fromkeys(found):
        if name and name != "/dev/null":
            job.outputs.append(folder / name)


def _node_states(job: SlurmJob, ask: Shell) -> None:
    if job.nodes and job.state not in ("COMPLETED", "RUNNING", "PENDING"):
        done = ask.run(["scontrol", "show", "node", job.nodes], SECONDS)
        if done.code == 0:
            job.told["scontrol-node.txt"] = done.stdout
