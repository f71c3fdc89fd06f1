"""What breaks Chroma must not break us: killed writers, garbage, several processes, hangs, a server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from traindoctor.index import build as building
from traindoctor.index import search as searching
from traindoctor.index import store
from traindoctor.index.build import build
from traindoctor.index.search import search

QUESTION = "loss scale overflow in float16"
BUILD = (
    "import sys; from pathlib import Path\n"
    "from traindoctor.index.build import build; from traindoctor.index.places import Sources\n"
    "cache, playbooks, documents = map(Path, sys.argv[1:])\n"
    "made = build(Sources(playbooks, documents), cache, lambda *stage: print(stage[0], flush=True))\n"
    "print(made); assert made.vectors"
)


def _builder(cache: Path, sources) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", BUILD, str(cache), str(sources.playbooks), str(sources.documents)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _healthy(cache: Path, sources) -> bool:
    found = search(QUESTION, cache_dir=cache, sources=sources)
    return found[0].document == "loss/fp16_overflow" and not found.degraded


def test_killed_writers_leave_nothing_behind(cache, sources) -> None:
    shutil.rmtree(cache / "chroma")
    for delay in (0.0, 0.1, 0.3):
        writer = _builder(cache, sources)
        assert writer.stdout is not None
        while "storing" not in (line := writer.stdout.readline()) and line:
            pass
        time.sleep(delay)
        writer.kill()
        writer.communicate()
    assert build(sources, cache).vectors
    assert not list((cache / "chroma").glob("building-*"))
    assert _healthy(cache, sources)


def test_two_builders_at_once(cache, sources) -> None:
    shutil.rmtree(cache / "chroma")
    writers = [_builder(cache, sources) for _ in range(2)]
    for writer in writers:
        _, complaint = writer.communicate(timeout=60)
        assert writer.returncode == 0, complaint
    assert len(list((cache / "chroma").glob("doctor-*"))) == 1
    assert _healthy(cache, sources)


@pytest.mark.parametrize("victim", ["chroma.sqlite3", "*/data_level0.bin", "*/*"])
def test_garbage_is_moved_aside_and_rebuilt(cache, sources, victim) -> None:
    version = next((cache / "chroma").glob("doctor-*"))
    for path in version.glob(victim):
        path.write_bytes(b"\x00garbage" * 64)
    found = search(QUESTION, cache_dir=cache, sources=sources)
    assert found[0].document == "loss/fp16_overflow"
    assert "words alone" in found.degraded
    assert not list((cache / "chroma").glob("doctor-*"))
    assert build(sources, cache).vectors
    assert _healthy(cache, sources)


def test_a_lost_database_is_not_silently_made_anew(cache, sources) -> None:
    version = next((cache / "chroma").glob("doctor-*"))
    (version / "chroma.sqlite3").unlink()
    assert search(QUESTION, cache_dir=cache, sources=sources).degraded
    assert build(sources, cache).vectors
    assert _healthy(cache, sources)


def test_a_damaged_encoder_is_exported_again(cache, sources) -> None:
    model = next((cache / "encoder").glob("*/encoder.onnx"))
    model.write_bytes(b"garbage")
    assert search(QUESTION, cache_dir=cache, sources=sources).degraded
    assert build(sources, cache).vectors
    assert _healthy(cache, sources)


def test_a_damaged_lexicon_is_compiled_again(cache, sources) -> None:
    for path in (cache / "lexicon").glob("*.json"):
        path.write_bytes(b'{"chunks": 3')
    searching._loaded.cache_clear()
    assert _healthy(cache, sources)


def test_a_hang_ends_at_the_deadline(cache, sources, monkeypatch) -> None:
    assert _healthy(cache, sources)  # libraries are loaded, also on a busy machine
    monkeypatch.setattr(searching, "DEADLINE", 1.5)
    monkeypatch.setattr(store, "nearest", lambda *_: time.sleep(60))
    start = time.monotonic()
    found = search(QUESTION, cache_dir=cache, sources=sources)
    assert time.monotonic() - start < 20
    assert found[0].document == "loss/fp16_overflow"
    assert "words alone" in found.degraded
    assert store.current(cache, next((cache / "chroma").glob("broken-*")).name[7:].rsplit(".", 1)[0]) is None


def test_a_cache_that_cannot_be_written(tmp_path, sources) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    made = build(sources, blocked / "cache")
    assert not made.vectors
    assert made.why
    assert search(QUESTION, cache_dir=blocked / "cache", sources=sources)[0].document == "loss/fp16_overflow"


def test_answering_writes_nothing(cache, sources) -> None:
    version = store.current(cache, next((cache / "chroma").glob("doctor-*")).name.rsplit(".", 1)[0])
    assert version is not None
    assert version.folder is not None
    before = store._digests(version.folder)
    assert all(_healthy(cache, sources) for _ in range(5))
    assert store._digests(version.folder) == before


def test_many_readers_while_one_builds(cache, sources) -> None:
    before = next((cache / "chroma").glob("doctor-*"))
    writer = _builder(cache, sources)
    assert all(_healthy(cache, sources) for _ in range(20))
    assert writer.wait(60) == 0
    assert before.exists()


def test_a_server_is_used_where_one_is_named(cache, sources, tmp_path, monkeypatch) -> None:
    shutil.rmtree(cache / "chroma")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chroma = str(Path(sys.executable).with_name("chroma"))
    argv = [chroma, "run", "--path", str(tmp_path / "server"), "--port", str(port)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        monkeypatch.setenv("DOCTOR_CHROMA_URL", f"http://127.0.0.1:{port}")
        made = build(sources, cache)
        assert made.vectors, made.why
        assert build(sources, cache).vectors
        assert _healthy(cache, sources)
        assert not (cache / "chroma").exists()
    finally:
        server.terminate()
        server.wait(10)
    assert "words alone" in search(QUESTION, cache_dir=cache, sources=sources).degraded


def test_builder_waits_its_turn(cache, sources, monkeypatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr(building, "LOCK_SECONDS", 0.1)
    shutil.rmtree(cache / "chroma")
    with FileLock(cache / "build.lock"):
        made = build(sources, cache)
    assert not made.vectors
    assert "another process" in made.why
