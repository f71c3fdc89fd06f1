"""What `doctor chat` opens: told at opening, refused in words that fit a chat, found again when it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.chat.talk import Wanted
from traindoctor.agent.core.config import settle
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.doors.commands.chat_command import ChatHouse
from traindoctor.agent.session import store

from tests.sample import sample


@pytest.fixture
def house(tmp_path: Path) -> ChatHouse:
    """One without a model, with an empty state folder."""
    state = store.usable_state(tmp_path / "state")[0]
    return ChatHouse(settle(), state, lambda name: None, "read")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a report that its job left."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text("step 1 loss 2.5\n")
    (folder / "doctor-report.json").write_text(sample(session="20260303-000000-job").to_json())
    return folder


def test_a_report_of_a_folder_is_opened_with_what_is_to_be_known(house, run, monkeypatch):
    monkeypatch.setitem(store._REPLACED, house.state, "state folder is on a network file system")
    talk = house.open(Wanted(report=str(run / "doctor-report.json")))
    assert [r.session for r in talk.reports] == ["20260303-000000-job"] and talk.session is None
    assert "whoever may write there" in talk.told[0] and "network file system" in talk.told[1]


def test_a_killed_session_is_found_by_its_run_and_by_nothing(house: ChatHouse, run: Path) -> None:
    with pytest.raises(UsageError, match="no session"):
        house.open(Wanted(resume=True))
    store.begin(house.state, "20260304-031500-a1b2c3", [run], [])
    for paths in ((), (str(run),)):
        talk = house.open(Wanted(paths=paths, resume=True))
        assert talk.session == "20260304-031500-a1b2c3" and talk.workspace.roots == [run]


def test_a_path_that_is_not_there_is_refused_without_standard_input(house: ChatHouse, run: Path) -> None:
    for wanted in (Wanted(paths=("/no/such",)), Wanted(paths=(str(run),), good=("/no/such",))):
        with pytest.raises(UsageError, match="no such path: /no/such") as e:
            house.open(wanted)
        assert "name a folder or a file" in str(e.value) and "standard input" not in str(e.value)
