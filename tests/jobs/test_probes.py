"""Programs that look at the machine: they need nothing of the house, and their output may be cut or forged."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.shell import Completed
from traindoctor.agent.jobs import probes
from traindoctor.agent.jobs.probes import host
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import all_tools

PROGRAMS = sorted(p for p in Path(probes.__file__).parent.glob("*.py") if p.stem != "__init__")
LOOKERS = ("gpu_status", "host_health", "ib_status", "package_conflicts", "storage_speed", "xid_errors", "slurm_job")


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_a_probe_needs_only_python(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "." for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    foreign = {n.split(".")[0] for n in names} - set(sys.stdlib_module_names)
    assert foreign <= {"pynvml", "torch"}, foreign
    assert path.stem in (ast.get_docstring(tree) or "")  # how to start it


def test_control_groups_of_version_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("memory.max", "1000\n"), ("memory.peak", "990\n"), ("memory.current", "900\n"), ("pids.max", "100\n"),
                       ("memory.events", "low 0\noom 2\noom_kill 2\n"), ("pids.current", "99\n"), ("cpu.max", "150000 100000\n")):  # fmt: skip
        (tmp_path / name).write_text(text)
    host.group_v2(tmp_path, "7")
    said = {f.pop("fact"): f for f in map(json.loads, capsys.readouterr().out.splitlines())}
    assert said["group_memory"] == {"pid": "7", "group": str(tmp_path), "limit": 1000, "peak": 990, "now": 900, "oom_kills": 2}
    assert said["group_processes"]["now"] == 99 and said["group_cores"]["cores"] == 1.5
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    host.group_v2(tmp_path, "7")
    assert "group_memory" not in capsys.readouterr().out


class Forged:
    """Answers every command with the same text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None) -> Completed:
        return Completed(tuple(argv), 0, self.text)


FIELDS = ("fact", "field", "gpu", "asking", "measure", "folder", "kind", "port", "counter", "value", "total", "free", "mount", "path",
          "name", "version", "requires", "python", "soft", "limit", "now", "first", "last", "bytes", "count", "seconds", "of", "who",
          "load", "cores", "left_bytes", "code")  # fmt: skip
WORDS = st.sampled_from(("disk", "inodes", "limit", "memory", "processor", "pressure", "clock", "zombie", "count", "name", "write", "a/b", "2.0", "x"))
VALUES = st.none() | st.booleans() | st.integers(-5, 1 << 40) | st.floats(allow_nan=False) | WORDS | st.lists(WORDS | st.integers(), max_size=3)
LINE = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=7).map(json.dumps) | st.text(max_size=30)


@pytest.mark.parametrize("name", LOOKERS)
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINE, max_size=12))
def test_forged_answers_make_no_crash(name: str, lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "forged"
    folder.mkdir(exist_ok=True)
    (folder / "slurm-7.out").write_text("step 1\n")
    ws = Workspace([folder], live=True, pids=(7,), shell=Forged("\n".join(lines)))
    assert all_tools()[name](ws).outcome in {"finding", "clean", "not_applicable", "failed"}
