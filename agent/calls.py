"""Work that a diagnosis survives: a call of a tool, what a report can do without. The only place that catches all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .deadline import Deadline
from .errors import DoctorError, ParseError, ToolError
from .tool import Tool, failed
from .types import ToolResult
from .workspace import Workspace


def guarded(
    tool: Tool, ws: Workspace, args: dict[str, Any], seconds: float, stopped: Callable[[], bool] | None = None
) -> tuple[ToolResult, str]:
    """Run a tool within a time limit. Returns its result and, where it crashed, what to tell as a bug of ours.

    Args:
        stopped: whether nobody wants the result any more.
    """
    try:
        with Deadline(seconds, stopped):
            return tool(ws, **args), ""
    except (ToolError, ParseError, DoctorError, TimeoutError) as e:
        return failed(str(e)), ""
    except Exception as e:  # noqa: BLE001 - a bug in one tool must not cost the whole diagnosis; it is told as ours
        told = f"{type(e).__name__}: {e}"
        return failed(f"bug in doctor: {told}"), f"{tool.name} crashed ({told}); this is a bug in doctor"


def survived(name: str, work: Callable[[], None], seconds: float) -> str:
    """Do what a verdict can stand without; empty, or what to tell where it failed."""
    try:
        with Deadline(seconds):
            work()
        return ""
    except (DoctorError, TimeoutError) as e:
        return f"no {name}: {e}"
    except Exception as e:  # noqa: BLE001 - a bug in what comes after the verdict must not cost the verdict
        return f"no {name}: it crashed ({type(e).__name__}: {e}); this is a bug in doctor"
