"""The one file by itself: on the oldest Python, without torch, as a wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "recorder"
OLDEST = next(iter(sorted((Path.home() / ".pyenv/versions").glob("3.9.*/bin/python"))), None)


@pytest.mark.skipif(OLDEST is None, reason="no Python 3.9 on this machine")
def test_python_3_9_imports_it_and_only_its_use_asks_for_torch(tmp_path):
    shutil.copy(FOLDER / "traindoctor_recorder.py", tmp_path)
    code = (
        "import sys, traindoctor_recorder as t\n"
        "assert 'torch' not in sys.modules\n"
        "try: t.Recorder('run')\n"
        "except RuntimeError as e: print(e)\n"
        "w = t._Writer('.', 1 << 20); w.line('rank_0.jsonl', {'step': 1}); w.close()\n"
        "print(open('rank_0.jsonl').read())\n"
    )
    done = subprocess.run(
        [str(OLDEST), "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "needs torch" in done.stdout
    assert '{"step": 1}' in done.stdout


def test_lines_never_grow_beyond_their_bound(tmp_path):
    code = (
        "import os, traindoctor_recorder as t\n"
        "w = t._Writer('.', 4000)\n"
        "for i in range(1000):\n    w.line('rank_0.jsonl', {'step': i}); w._drain()\n"
        "w.close()\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
    )
    sizes = {p.name: p.stat().st_size for p in tmp_path.iterdir()}
    assert sizes.keys() == {"rank_0.jsonl", "rank_0.before.jsonl"}
    assert max(sizes.values()) <= 4000
    assert '{"step": 999}' in (tmp_path / "rank_0.jsonl").read_text()


def test_a_folder_that_goes_away_is_told_once_and_ends_nothing(tmp_path):
    code = (
        "import shutil, os, traindoctor_recorder as t\n"
        "os.mkdir('run'); w = t._Writer('run', 4000)\n"
        "w.line('rank_0.jsonl', {'step': 1}); w.now(); shutil.rmtree('run')\n"
        "for i in range(3): w.line('rank_0.jsonl', {'step': i}); w.now()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(FOLDER)})  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("cannot write") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.soak
def test_the_wheel_holds_the_one_file(tmp_path):
    source = shutil.copytree(FOLDER, tmp_path / "recorder")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path), str(source)],
                   check=True, capture_output=True, timeout=120)  # fmt: skip
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = [n for n in wheel.namelist() if ".dist-info/" not in n]
        meta = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
    assert names == ["traindoctor_recorder.py"]
    assert "Requires-Dist" not in meta
