"""Programs on the nodes of Slurm: in the allocation of a job that is alive, else in a short one of their own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...core.errors import UsageError
from ...core.shell import Completed, Live, Shell
from .engine import STDOUT_LIMIT, Answer, Node, abreast, answered

# ----------
# Asking Slurm's programs: each has its seconds, and who did not answer once is not waited for again.


SECONDS = 10.0  # for each program of Slurm
_ACCOUNTING = ("sacct", "sacctmgr")  # these talk to the accounting's daemon, all others to the controller


class SlurmShell:
    """Runs Slurm's programs. A controller that hangs costs one wait, not one for each question."""

    def __init__(self) -> None:
        self._silent: dict[bool, str] = {}

    def run(
        self, argv: list[str], timeout: float = SECONDS, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        """What a program answers; at once and with the reason where its daemon was silent before."""
        daemon = argv[0] in _ACCOUNTING
        if why := self._silent.get(daemon):
            return Completed(tuple(argv), None, "", f"{argv[0]}: {why}")
        done = Live().run(argv, timeout, env, cwd)
        if done.code is None and "no answer" in done.stderr:
            self._silent[daemon] = f"no answer within {timeout:g} s"
        return done


# ----------

ALLOCATION = 30.0  # seconds to wait for a short allocation on one node
_SPARE = 8.0  # seconds that srun may need beside the program
_OUT_OF_TIME = (124, 137)  # how timeout(1) ends when it had to end the program
_AWAY = re.compile(r"DOWN|FAIL|NOT_RESPONDING|UNKNOWN|POWERED_DOWN|\*")
_TASK = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: ")
_WHY = re.compile(r"^(?:srun|slurmstepd)[^:]*: (?:error: |fatal: )?(?P<why>.+)$")


class SlurmEngine:
    """Runs programs by srun.

    Args:
        job: a job whose allocation is used while it lives; what runs there shares its resources (`--overlap`).
        names: nodes to use; without them those of the job.
        partition: where short allocations are asked for; Slurm's default where empty.
        shell: asks Slurm; one that is shared remembers who did not answer.
    """

    name = "slurm"

    def __init__(
        self, job: str = "", names: Sequence[str] = (), partition: str = "", shell: Shell | None = None
    ) -> None:
        if not shutil.which("srun"):
            raise UsageError("srun is not installed here", "run this on a login node of the cluster")
        self._job, self._names, self._partition = job, list(names), partition
        self._shell = shell or SlurmShell()
        self._alive = bool(job) and self._asked(["squeue", "-h", "-j", job, "-o", "%T"])[0].split() == ["RUNNING"]

    @property
    def alive(self) -> bool:
        """Whether the job runs now."""
        return self._alive

    def nodes(self) -> list[Node]:
        """The nodes with their states.

        Raises:
            UsageError: Slurm does not answer, or knows no nodes of this job.
        """
        names = self._names or tuple(dict.fromkeys(hostnames(self._listed(), self._shell)))
        if not names:
            raise UsageError(f"Slurm knows no nodes of job {self._job}", "name them")
        said, why = self._asked(["scontrol", "--oneliner", "show", "node", ",".join(names)])
        if why and not said:
            raise UsageError(f"Slurm does not tell about its nodes: {why}", "is it up? see scontrol ping")
        known = {m[1]: m[0] for m in re.finditer(r"^NodeName=(\S+).*$", said, re.MULTILINE)}
        return [_node(name, known.get(name, "")) for name in names]

    def _listed(self) -> str:
        """A job that ends has only some of its nodes in the queue and in its own row; its steps know the others."""
        queued, _ = self._asked(["squeue", "-h", "-j", self._job, "-t", "RUNNING", "-o", "%N"])
        said = queued or self._asked(["sacct", "-n", "-P", "-j", self._job, "-o", "NodeList"])[0]
        found = [line.strip() for line in said.splitlines()]
        return ",".join(dict.fromkeys(n for n in found if n and n != "None assigned"))

    def _asked(self, argv: list[str]) -> tuple[str, str]:
        """What one of Slurm's programs prints, and why it printed nothing."""
        done = self._shell.run(argv, SECONDS)
        said = done.stderr.strip().splitlines()
        return (done.stdout, "") if done.code == 0 else ("", said[-1] if said else f"{argv[0]} failed")

    def run(
        self, argv: Sequence[str], nodes: Sequence[str], timeout: float, stdin: bytes = b"", limit: int = STDOUT_LIMIT
    ) -> list[Answer]:
        """See `Engine.run`. `timeout(1)` ends the program on its node, so that nothing is left when srun is gone."""
        return abreast(lambda node: self._one(node, argv, timeout, stdin, limit), nodes)

    def _one(self, node: str, argv: Sequence[str], timeout: float, stdin: bytes, limit: int) -> Answer:
        seconds = max(1, round(timeout))
        words = [
            "srun",
            "--quiet",
            f"--nodelist={node}",
            "--nodes=1",
            "--ntasks=1",
            "--job-name=doctor",
            "--export=ALL",
        ]
        if self._alive:
            words += [f"--jobid={self._job}", "--overlap"]
        else:
            words += [f"--immediate={ALLOCATION:g}", f"--time={seconds // 60 + 2}"]
            words += [f"--partition={self._partition}"] if self._partition else []
        spare = _SPARE if self._alive else _SPARE + ALLOCATION
        words += ["timeout", "-k", "2", str(seconds), *argv]
        answer = answered(node, words, timeout + spare, stdin, limit)
        if answer.code in _OUT_OF_TIME:
            return replace(answer, code=None, why=f"did not answer within {timeout:g} s")
        if answer.code and (why := _refused(answer.stderr)):
            return replace(answer, code=None, why=why)
        return answer


def _refused(stderr: str) -> str:
    """Why srun itself gave up; empty where the program ran and ended."""
    lines = [line for line in stderr.splitlines() if _WHY.match(line)]
    if not lines or any(_TASK.match(line) for line in lines):
        return ""
    found = _WHY.match(lines[0])
    return f"was refused by Slurm: {found['why']}" if found else ""


def _node(name: str, said: str) -> Node:
    fields = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", said))
    state = fields.get("State", "unknown to Slurm" if not said else "")
    reason = re.search(r"\bReason=(.*?)(?=\s+\w+=|$)", said)
    gpus = re.search(r"\bgres/gpu=(\d+)", said) or re.search(r"\bGres=gpu(?::[\w.-]+)?:(\d+)", said)
    words = f"{state}: {reason[1]}" if reason else state
    address = fields.get("NodeAddr", "")
    return Node(name, words, bool(said) and not _AWAY.search(state), int(gpus[1]) if gpus else None, address)


def hostnames(listed: str, shell: Shell | None = None) -> list[str]:
    """`n[1-3],m7` as names."""
    if not re.search(r"[\[\]]", listed):
        return [name for name in listed.split(",") if name]
    return (shell or SlurmShell()).run(["scontrol", "show", "hostnames", listed], SECONDS).stdout.split()
