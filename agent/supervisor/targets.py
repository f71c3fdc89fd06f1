"""Targets of notices, tried before a job runs for days: in a child, so that the supervisor stays small."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..errors import DoctorError, UsageError
from .wishes import Voice, Wishes

LONGEST = 2000  # bytes of a line that refuses


def tried(wishes: Wishes, given: Mapping[str, str], say: Voice) -> None:
    """Try what `--notify` names and wait for that; what the environment names is tried beside the job, and told.

    What an earlier job left unsent is sent meanwhile.

    Raises:
        UsageError: nothing can be sent to one that the command line names.
    """
    if not wishes.triage or not (wishes.notify or given.get("DOCTOR_NOTIFY") or given.get("DOCTOR_NOTIFY_FILE")):
        return
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hears)
            wrong = _wrong(wishes)
            if wrong and not wishes.notify:
                say(" - ".join(wrong))
            os.write(says, "\n".join(wrong).encode("utf-8", "replace")[:LONGEST])
        finally:
            os._exit(0)
    os.close(says)
    try:
        if wishes.notify and (told := os.read(hears, LONGEST)):
            os.waitpid(pid, 0)
            what, _, hint = told.decode("utf-8", "replace").partition("\n")
            raise UsageError(what, hint)
    finally:
        os.close(hears)


def _wrong(wishes: Wishes) -> list[str]:
    try:
        from ..notices.announce import send_again
        from ..notices.targets import checked

        checked(wishes.notify)
        send_again()
    except DoctorError as e:
        return [e.message, e.hint]
    except Exception as e:  # noqa: BLE001 - that a check fails must not cost a job
        return [] if wishes.notify else [f"notices: {type(e).__name__}"]
    return []
