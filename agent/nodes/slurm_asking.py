"""Asking Slurm's programs: each has its seconds, and who did not answer once is not waited for again."""

from __future__ import annotations

from pathlib import Path

from ..shell import Completed, Live

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
