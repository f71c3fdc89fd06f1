"""Questions of earlier chats: kept without secrets, for their owner alone, by two chats at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from traindoctor.agent.chat.chat_export import LONGEST, MOST, NAME, SLACK, PastQuestions

KEY = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA2cD4f"


def test_they_come_back_in_order_without_secrets_for_their_owner_alone(tmp_path: Path) -> None:
    past = PastQuestions(tmp_path)
    for question in ("why?", "why?", f"does {KEY} work?", "two\nlines \x1b[31m", "  ", "why?"):
        past.keep(question)
    assert PastQuestions(tmp_path).all() == ["why?", "does <SECRET:hf:1> work?", "two\nlines \\x1b[31m", "why?"]
    assert KEY not in (tmp_path / NAME).read_text() and (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert len(past.keep("x" * 20_000)) == LONGEST
    assert PastQuestions(None).all() == [] and PastQuestions(None).keep("why?") == "why?"


def test_two_chats_at_once_lose_nothing(tmp_path: Path) -> None:
    def chat(name: str) -> None:
        past = PastQuestions(tmp_path)
        for i in range(20):
            past.keep(f"{name}{i}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(chat, "ab"))
    found = PastQuestions(tmp_path).all()
    assert sorted(found) == sorted(f"{c}{i}" for c in "ab" for i in range(20))
    assert [q for q in found if q[0] == "a"] == [f"a{i}" for i in range(20)]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    lines = [json.dumps(f"q{i}") for i in range(MOST + SLACK)]
    (tmp_path / NAME).write_text("\n".join(lines))
    past = PastQuestions(tmp_path)
    assert past.all() == [f"q{i}" for i in range(SLACK, MOST + SLACK)]
    past.keep("the last")
    assert len((tmp_path / NAME).read_bytes().split(b"\n")) == MOST
    assert past.all()[-1] == "the last" and past.all()[0] == f"q{SLACK + 1}"
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600 and not list(tmp_path.glob(".*questions*"))


def test_a_damaged_file_costs_its_damaged_lines(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'"one"\n{"of": "a later version"}\n\xff\xfe\n' + b"[" * 5000 + b'\n"half wri')
    past = PastQuestions(tmp_path)
    assert past.all() == ["one"]
    past.keep("two")
    assert past.all() == ["one", "two"]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text('"not ours"')
    (tmp_path / NAME).symlink_to(other)
    past = PastQuestions(tmp_path)
    assert past.all() == []
    try:
        past.keep("why?")
    except OSError:
        pass
    else:
        raise AssertionError("it was written through a link")
    assert other.read_text() == '"not ours"'
