"""The user's documents: added, refused, replaced, removed; they outlive the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.index import documents
from traindoctor.index.documents import DocumentRefused
from traindoctor.index.places import Sources
from traindoctor.index.search import bound, lexical


def _file(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path


def test_added_found_and_removed(tmp_path) -> None:
    kept = tmp_path / "state"
    note = _file(tmp_path, "rack.txt", b"Cooling\n\nThe pump of rack seven fails in summer.\n\nPower\n\nTwo feeds.")
    assert documents.add([note], kept) == ["rack.txt"]
    note.unlink()
    sources, cache = Sources(tmp_path / "none", kept), tmp_path / "cache"
    found = lexical("pump of rack seven", cache_dir=cache, sources=sources)
    assert (found[0].document, found[0].headings) == ("rack.txt", ["Cooling"])
    assert documents.remove("rack.txt", kept)
    assert not documents.remove("rack.txt", kept)
    assert lexical("pump of rack seven", cache_dir=cache, sources=sources) == []


def test_a_document_of_the_same_name_is_replaced(tmp_path) -> None:
    documents.add([_file(tmp_path / "a", "n.md", b"old")], tmp_path / "state")
    documents.add([_file(tmp_path / "b", "n.md", b"new")], tmp_path / "state")
    assert documents.names(tmp_path / "state") == ["n.md"]
    assert (tmp_path / "state" / "n.md").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "data"),
    [("x.bin", b"a"), ("x.txt", b"a\0b"), ("x.md", b"  \n"), (".x.md", b"a"), ("x.md", b"a" * (9 << 20))],
)
def test_refused(tmp_path, name, data) -> None:
    with pytest.raises(DocumentRefused):
        documents.add([_file(tmp_path, name, data)], tmp_path / "state")
    assert documents.names(tmp_path / "state") == []


def test_one_refused_file_adds_none(tmp_path) -> None:
    with pytest.raises(DocumentRefused, match="no such file"):
        documents.add([_file(tmp_path, "good.md", b"text"), tmp_path / "gone.md"], tmp_path / "state")
    assert documents.names(tmp_path / "state") == []


def test_two_files_of_one_name_in_one_call(tmp_path) -> None:
    pair = [_file(tmp_path / "a", "n.md", b"one"), _file(tmp_path / "b", "n.md", b"two")]
    with pytest.raises(DocumentRefused, match="another file"):
        documents.add(pair, tmp_path / "state")


def test_names_cannot_leave_the_folder(tmp_path) -> None:
    outside = _file(tmp_path, "outside.md", b"x")
    (tmp_path / "state").mkdir()
    assert not documents.remove("../outside.md", tmp_path / "state")
    assert outside.exists()


def test_utf16_and_invalid_bytes(tmp_path) -> None:
    documents.add([_file(tmp_path, "w.txt", "Große Schäden".encode("utf-16"))], tmp_path / "state")
    assert (tmp_path / "state" / "w.txt").read_text() == "Große Schäden"
    documents.add([_file(tmp_path, "l.txt", b"caf\xe9 machine broken")], tmp_path / "state")
    assert lexical("machine broken", cache_dir=tmp_path / "c", sources=Sources(tmp_path / "none", tmp_path / "state"))


def test_a_teams_playbook_replaces_a_built_in_one(tmp_path, monkeypatch) -> None:
    for folder, word in (("built", "walrus"), ("own", "pelican")):
        _file(tmp_path / folder / "loss", "x.md", f"---\ncause: loss.x\ntitle: A {word} title\n---\nBody.".encode())
    monkeypatch.setenv("DOCTOR_KNOWLEDGE", str(tmp_path / "own"))
    sources, cache = Sources(tmp_path / "built", tmp_path / "none"), tmp_path / "cache"
    assert lexical("pelican", cache_dir=cache, sources=sources)[0].document == "loss/x"
    assert lexical("walrus", cache_dir=cache, sources=sources) == []


def test_front_matter_binds_a_document_to_a_cause(tmp_path) -> None:
    kept, cache = tmp_path / "state", tmp_path / "cache"
    text = b"---\ncause: dist.ib_link\n---\n# Blue cluster\n\n## Flapping ports\n\nSwitch 12 flaps: move the cable.\n"
    documents.add([_file(tmp_path, "switches.md", text), _file(tmp_path, "lunch.md", b"# Lunch\n\nAt noon.\n")], kept)
    sources = Sources(tmp_path / "none", kept)
    assert [r.document for r in bound("dist.ib_link", cache_dir=cache, sources=sources)] == ["switches.md"]
    assert bound("dist.rendezvous", cache_dir=cache, sources=sources) == []
    found = lexical("switch 12 flaps", cache_dir=cache, sources=sources)
    assert (found[0].cause, found[0].headings) == ("dist.ib_link", ["Blue cluster", "Flapping ports"])
    assert "cause:" not in found[0].text


def test_a_document_cannot_be_bound_to_what_is_no_cause(tmp_path) -> None:
    with pytest.raises(DocumentRefused, match=r"'dist.gremlins', which is no cause"):
        documents.add([_file(tmp_path, "x.md", b"---\ncause: dist.gremlins\n---\nText.\n")], tmp_path / "state")


@pytest.mark.parametrize("front", [b"cause: [a, b]", b"cause: " + b"[" * 60_000, b"cause: {x: 1}"])
def test_odd_front_matter_ends_nothing(tmp_path, front: bytes) -> None:
    kept = tmp_path / "state"
    page = _file(tmp_path, "odd.md", b"---\n" + front + b"\n---\n# Pump\n\nThe pump fails.\n")
    try:
        documents.add([page], kept)
    except DocumentRefused:
        return
    assert lexical("pump fails", cache_dir=tmp_path / "cache", sources=Sources(tmp_path / "none", kept))


def test_a_closed_folder_of_documents_is_an_empty_one(tmp_path: Path) -> None:
    """A hook runs as another user, whose state folder may be anybody's."""
    closed = tmp_path / "closed" / "documents"
    closed.mkdir(parents=True)
    (closed / "notes.md").write_text("# Ours\n")
    code = "import os, sys; from pathlib import Path; from traindoctor.index.places import Sources\n" \
        "os.setuid(65534) if os.getuid() == 0 else None\n" \
        "print(len(Sources(Path('/none'), Path(sys.argv[1])).files()))"  # fmt: skip
    closed.parent.chmod(0)
    try:
        done = subprocess.run([sys.executable, "-c", code, str(closed)], capture_output=True, text=True)
    finally:
        closed.parent.chmod(0o700)
    assert (done.stdout, done.stderr) == ("0\n", "")
