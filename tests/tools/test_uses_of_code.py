"""What of a library and of a program's commands a run used: lists, imports and tests for a class are no use of it."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from traindoctor.agent.reading.code.circumstances import Circumstances
from traindoctor.agent.reading.code.project import code_project, reached_settings
from traindoctor.agent.reading.code.reach import Reach
from traindoctor.agent.reading.run.workspace import Workspace

ENTRY = """
    from kit import Small, Large
    def main():
        net = Small()
        print("training starts", isinstance(net, Large))
    if __name__ == "__main__":
        main()
"""
KIT = """
    __all__ = ["Small", "Large"]
    class Small:
        learning_rate: float = 0.1
        def fit(self):
            return 1
    class Large(Small):
        learning_rate: float = 0.2
        def fit(self):
            return 2
    if __name__ == "__main__":
        Large().fit()
"""


def workspace(folder, **files) -> Workspace:
    for name, text in files.items():
        path = folder / (name.replace("__", "/").replace("_DOT_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return Workspace([folder])


def runs(ws: Workspace, source: str, text: str) -> bool:
    code = next(c for c in code_project(ws)[0].codes if c.file.name == source)
    line = next(n for n, row in enumerate(code.source.splitlines(), 1) if text in row)
    return code_project(ws)[0].run.reached(source, line) > 0


def test_a_class_that_is_only_imported_listed_and_tested_for_is_not_used(tmp_path) -> None:
    ws = workspace(tmp_path, train_DOT_py=ENTRY, kit_DOT_py=KIT, train_DOT_log="training starts False\n")
    assert runs(ws, "kit.py", "learning_rate: float = 0.1")
    assert not runs(ws, "kit.py", "learning_rate: float = 0.2")
    assert not runs(ws, "kit.py", "Large().fit()")
    assert not [s for s in reached_settings(ws).all if s.value == 0.2]


@pytest.mark.parametrize(("config", "used"), [("net: Large\n", True), ("net: Other\n", False)])
def test_what_code_looks_up_stands_in_a_config(tmp_path, config, used) -> None:
    entry = ENTRY.replace("from kit import Small, Large", "import kit, yaml").replace(
        "Small()", "getattr(kit, yaml.safe_load(open('run.yaml'))['net'])()"
    )
    entry = entry.replace(", isinstance(net, Large)", "")
    ws = workspace(tmp_path, train_DOT_py=entry, kit_DOT_py=KIT, run_DOT_yaml=config, train_DOT_log="training starts\n")
    assert runs(ws, "kit.py", "learning_rate: float = 0.2") is used


CLICK = """
    import click
    @click.group()
    def main():
        pass
    @main.command()
    def fit():
        print("fitting the net to the table")
        raise ValueError("no rows")
    @main.command()
    def label():
        print("labels are written now")
    main()
"""
TRACE = """
    fitting the net to the table
    Traceback (most recent call last):
      File "/data/tool.py", line 14, in <module>
        main()
      File "/data/tool.py", line 9, in fit
        raise ValueError("no rows")
    ValueError: no rows
"""


def test_of_several_commands_the_one_in_the_traceback_ran(tmp_path) -> None:
    ws = workspace(tmp_path, tool_DOT_py=CLICK, run_DOT_log=TRACE)
    assert runs(ws, "tool.py", "fitting the net")
    assert not runs(ws, "tool.py", "labels are written")


def test_an_empty_module_makes_no_excerpt_of_a_program(tmp_path) -> None:
    ws = workspace(
        tmp_path,
        train_DOT_py=ENTRY.replace("from kit import", "from lib.kit import"),
        lib__kit_DOT_py=KIT,
        train_DOT_log="training starts False\n",
    )
    (tmp_path / "lib" / "__init__.py").write_text("")
    ws = Workspace([tmp_path])
    assert not runs(ws, "lib/kit.py", "return 2")


def test_readings_that_need_each_other_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools run in threads of one diagnosis: one is at what the run did, another holds the workspace and asks for it."""
    (tmp_path / "train.py").write_text("for step in range(3):\n    print(f'step {step} loss {1.0}')\n")
    (tmp_path / "train.log").write_text("step 0 loss 1.0\n")
    ws = Workspace([tmp_path])
    run = code_project(ws)[0].run
    inside, held = threading.Event(), threading.Event()

    def slow(_: Circumstances) -> Iterator[Reach]:
        inside.set()
        held.wait(20)
        ws.memo("asked of the workspace", lambda: 1)
        return iter(())

    monkeypatch.setattr(Circumstances, "_made", slow)
    one = threading.Thread(target=lambda: run.reached("train.py", 1), daemon=True)
    one.start()
    assert inside.wait(20)
    other = threading.Thread(
        target=lambda: ws.memo("holds it", lambda: (held.set(), run.reached("train.py", 1))), daemon=True
    )
    other.start()
    other.join(20)
    one.join(20)
    assert not one.is_alive() and not other.is_alive()
