"""Whether shapes differ on loading because the checkpoint was cut into another number of parts."""

from __future__ import annotations

from ..reading.split_shapes import split_otherwise
from ..tool import clean, finding, tool
from ..types import ToolResult
from ..workspace import Workspace


@tool(emits=("checkpoint.split_otherwise",), recall=True)
def split_tensors(ws: Workspace) -> ToolResult:
    """Tell a change of the parallel layout from a change of the model, where load_state_dict says size mismatch.

    Use when shapes differ on loading and files of model-parallel ranks (mp_rank_00, consolidated.00.pth) lie there.
    All mismatched tensors must differ by the one factor that the number of parts on disk and the number of parts now
    explain.
    """
    found = split_otherwise(ws)
    if found is None:
        return clean("no mismatch of shapes that another number of parts explains")
    value = f"{found.saved} parts on disk, {found.built} now"
    evidence = [ws.cite(file, line, "checkpoint.split_otherwise", value) for file, line in found.lines]
    text = f"{found.part.name} is one of {found.saved} parts"
    evidence.append(ws.binary(found.part, "", "checkpoint.split_otherwise", value, text))
    return finding(f"the checkpoint holds tensors in {value}", evidence)
