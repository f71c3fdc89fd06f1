"""Runs of a few files, and what one tool says of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from traindoctor.agent.core.types import Evidence, ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import Tool


class Seen:
    """A tool's answer over a folder: values by key, lines by key."""

    def __init__(self, result: ToolResult, folder: Path) -> None:
        self.result = result
        self.evidence = result.evidence
        self.folder = folder
        self._quotes_are_real()

    def values(self, key: str) -> list[Any]:
        return [e.value for e in self.evidence if e.key == key and e.kind != "absent"]

    def one(self, key: str) -> Any:
        found = self.values(key)
        assert found, f"{key} is not among {sorted({e.key for e in self.evidence})}"
        return found[0]

    def lines(self, key: str) -> list[str]:
        return [e.text for e in self.evidence if e.key == key]

    def of(self, key: str) -> list[Evidence]:
        return [e for e in self.evidence if e.key == key]

    def told(self, key: str) -> list[str]:
        """Values of a fact that is no evidence, as the text has them."""
        return told(self.result, key)

    def _quotes_are_real(self) -> None:
        """Every cited line stands in its file under its number."""
        for e in self.evidence:
            if e.kind != "line":
                continue
            assert e.file and e.line
            data = (self.folder / e.file).read_bytes()
            if not e.file.endswith(".gz"):
                line = data.split(b"\n")[e.line - 1]
                assert line.decode(errors="replace")[: len(e.text)] == e.text, (e.file, e.line)
                assert data[e.offset or 0 :].startswith(line)


def told(result: ToolResult, key: str) -> list[str]:
    """Values of a fact in the text of a result, a line each."""
    return re.findall(rf"(?m)\b{re.escape(key)} = (.*)$", result.text)


def look(tool: Tool, folder: Path, **files: str | bytes) -> Seen:
    """Write files (`train_log="..."` becomes train.log) and ask the tool."""
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(data)
    result = tool(Workspace([folder]))
    for e in result.evidence:
        assert tool.allows(e.key), e.key
    return Seen(result, folder)
