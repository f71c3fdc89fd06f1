"""What can go wrong, and who is told.

    DoctorError            one line for the user: what is wrong and what to do
      UsageError           exit 2: no such path, contradictory flags
        DiffRefused        a diff is not one plain change of its file, or was made for another text
      NothingReadable      exit 3: no file in any role could be read
      ModelFailed          exit 4: `--require-model` was given and the model failed
      Stopped                whoever asked ended the diagnosis before its report
      ChangeRefused        a change of a setting would change more than that; nothing was written
      KnowledgeError       a playbook, the settings map or another data file is wrong (file and line)
    ToolError              told to the planner; the diagnosis goes on
    ParseError             a file is not in the format it claims; the reader skips it and says so

Anything else that escapes a tool is our bug: it is told as one and the diagnosis goes on without it.
"""

from __future__ import annotations


class DoctorError(Exception):
    """A user can cause this: shown as one line, never as a traceback."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(DoctorError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class DiffRefused(UsageError):
    """A diff is not a plain change of the one file it is for, or the file is not the one it was made for."""


class NothingReadable(DoctorError):
    """Nothing in the given paths is readable in any role."""

    exit_code = 3


class ModelFailed(DoctorError):
    """The named model did not answer and the user required it to."""

    exit_code = 4


class Stopped(DoctorError):
    """Whoever asked ended the diagnosis. What was found so far is kept in its session."""

    exit_code = 130


class ChangeRefused(DoctorError):
    """A change of a setting, read back, is not what was asked for or changes something else."""


class KnowledgeError(DoctorError):
    """A knowledge file is malformed. The message starts with `file:line:`."""

    exit_code = 2


class ToolError(Exception):
    """A diagnostic could not do its work for a reason outside doctor; the planner is told."""


class ParseError(Exception):
    """A file of the run is not what it claims to be."""
