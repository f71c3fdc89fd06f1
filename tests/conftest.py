"""What all tests share: folders of their own, no colour, no network."""

from __future__ import annotations

import io
import itertools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A starved machine is slow; that says nothing about what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

ROOT = Path(__file__).resolve().parent.parent
_REAL = re.compile(
    r"^\s*(?:import (?:subprocess|torch\.multiprocessing)"
    r"|from tests\.(?:reading\.checkpoints|jobs\.supervised|jobs\.live|tools\.(?:training_runs|machine)|llm)"
    r"|from traindoctor\.evals\.(?:endpoint|hostile|run) )",
    re.MULTILINE,
)
# Folders whose tests diagnose whole runs, drive the whole program, start what is timed, or write to disk for good.
_WHOLE = ("applying", "collect", "evals", "nodes", "serving", "tui", "watching")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `real` what starts programs or servers or works on what they made; `make unit` leaves these out."""
    known: dict[Path, bool] = {}
    for item in items:
        if item.path not in known:
            whole = item.path.parent.name in _WHOLE
            known[item.path] = whole or bool(_REAL.search(item.path.read_text(encoding="utf-8")))
        if known[item.path] or "process" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)


_NUMBERS = itertools.count()


def _own_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A new folder, numbered without a look at those of all tests before, which costs more with each of them."""
    folder = factory.getbasetemp() / "of" / f"{name}{next(_NUMBERS)}"
    folder.mkdir(mode=0o700, parents=True)
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own for each test, as pytest's; a few letters shorter, since sockets may lie in it."""
    return _own_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:22])


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests() -> None:
    """One cache for all tests, kept between runs: compiling the patterns for each would cost minutes."""
    from filelock import FileLock
    from traindoctor.agent.doors.commands.knowledge_commands import compile_patterns

    folder = ROOT / ".pytest_cache" / "doctor"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["DOCTOR_CACHE"] = str(folder)
    with FileLock(folder / "tests.lock"):
        compile_patterns()


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A state folder and a config of its own for each test; nothing of the developer's gets in."""
    from traindoctor.agent.core.config import settle

    folder = _own_folder(tmp_path_factory, "state")
    ours = [n for n in os.environ if n.startswith(("DOCTOR_", "OPENAI_")) and n != "DOCTOR_CACHE"]
    for name in (*ours, "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCTOR_STATE", str(folder))
    monkeypatch.setenv("DOCTOR_CONFIG", str(folder / "config.toml"))
    monkeypatch.setenv("NO_COLOR", "1")
    settle.cache_clear()
    before = set(os.environ)
    yield
    for name in os.environ.keys() - before:  # what `settle()` made hold ends with the test
        if name.startswith("DOCTOR_"):
            del os.environ[name]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections leave this machine in no test."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "local"
        if host not in ("local", "127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # pyright: ignore

    monkeypatch.setattr(socket.socket, "connect", guarded)


Doctor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def process() -> Doctor:
    """Run the command in a process of its own: `process("ask", "why?", "--run", folder)`."""

    def run(*arguments: object, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"]
        return subprocess.run(
            [*argv, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            input=stdin,
            cwd=cwd,
        )

    return run


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """The same within this process, which spares the imports: `doctor("ask", "why?", "--run", folder)`."""
    from traindoctor.agent.core.config import settle
    from traindoctor.agent.doors.cli import main

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        settle.cache_clear()
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(3)]
        with monkeypatch.context() as m:
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                m.setattr(sys, name, stream)
            if cwd:
                m.chdir(cwd)
            code = main([str(a) for a in arguments])
        out, err = (s.buffer.getvalue().decode() for s in streams[1:])  # pyright: ignore
        return subprocess.CompletedProcess([str(a) for a in arguments], code, out, err)

    return run


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT
