"""Completion: from what is typed to what is meant, quoted so that the command reads it back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input
from traindoctor.agent.chat.offered_repairs import Repairs
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import Report
from traindoctor.agent.tools.tool import all_tools
from traindoctor.tui import messages
from traindoctor.tui.chat.completion import MOST, Candidate, Known, Place, candidates, place
from traindoctor.tui.chat.completion_disk import OnDisk
from traindoctor.tui.chat.prompt import Prompt
from traindoctor.tui.commands import COMMANDS, parsed

from tests.repair.applying.makers import patch, report
from tests.sample import sample
from tests.tui.kept_sessions import every_kind
from tests.tui.stage import NARROW, Stage, play, settled, talk_about

MANY = [f"logs/node{i:03}/rank{i % 8}.log" for i in range(20_000)]


@pytest.mark.parametrize(("before", "found"), [
    ("/", Place(0, "", "command", "/")),
    ("/ev", Place(0, "ev", "command", "/")),
    ("/evidence ", Place(10, "", "evidence")),
    ("/e E", Place(3, "E", "evidence")),
    ("/evidence E1 more", None),
    ("/apply P1 P", Place(10, "P", "patch")),
    ('/run "/data/my ru', Place(5, "/data/my ru", "path")),
    (r"/run /data/my\ ru", Place(5, "/data/my ru", "path")),
    ("/report ", None),
    ("/nosuch x", None),
    ("why", None),
    (" /run", None),
    ("show @", Place(5, "", "file")),
    ("show @tr", Place(5, "tr", "file")),
    ('show @"rank 3', Place(5, "rank 3", "file")),
    ("mail a@b", None),
    ("show @tr and", None),
    ("/tool scan-logs @tr", Place(16, "tr", "file")),
])  # fmt: skip
def test_what_is_being_typed(before: str, found: Place | None) -> None:
    assert place(before) == found


def test_only_the_first_line_is_a_command() -> None:
    assert place("/ev", first=False) is None and place("@x", first=False) == Place(0, "x", "file")


def texts(where: str, known: Known | None = None) -> list[str]:
    at = place(where)
    assert at is not None
    return [c.text for c in candidates(at, known or Known())]


def test_names_are_found_by_their_letters_and_come_out_inert() -> None:
    known = Known(files=["a/train.log", "train.log", "my train.log", "t/r/a/i/n", 'q"uote.log', "evil\x1b[2J\n.log"])
    assert texts("@train.l", known) == ["train.log", "a/train.log", '"my train.log"']
    assert texts("@train", known)[-1] == "t/r/a/i/n"
    assert texts("@evil", known) == ['"evil\\x1b[2J\\n.log"']
    assert texts("@uote", known) == ["'q\"uote.log'"]
    big = Known(files=[*MANY, "a" * 4000])
    assert texts("@node19999", big) == ["logs/node19999/rank7.log"]
    assert (
        len(texts("@log", big)) == MOST and texts("@" + "a" * 50 + "b", big) == []
    )  # letters that repeat cost nothing


def test_each_kind_of_word_has_its_rows() -> None:
    report = sample()
    known = Known(
        evidence=[(e.id, e.text) for e in report.evidence], patches=[("P1", "ds_config.json")], models=[("big", "")]
    )
    assert texts("/evidence ", known) == ["E1", "E2", "E3", "E4"]
    assert texts("/evidence scale", known) == ["E1"]
    assert texts("/model ", known) == ["big", "off"] and texts("/apply ", known) == ["P1"]
    assert texts("/theme li")[0] != "" and "doctor-light" in texts("/theme li")
    assert texts("/allow p") == ["probe"] and texts("/export conversation.h") == ["conversation.html"]
    assert texts("/") == [c.name for c in COMMANDS]


def test_tools_and_paths_are_read_from_where_they_are(tmp_path: Path) -> None:
    offered = OnDisk().offered
    names = [c.text for c in offered(Place(6, "", "tool"))]
    assert names == [n.replace("_", "-") for n in all_tools()][:MOST]
    assert offered(Place(6, "scan_lo", "tool"))[0].text == "scan-logs"
    for name in ("my run", ".hidden", "bad\x1bname", "bi\u202edi"):
        (tmp_path / name).mkdir()
    (tmp_path / 'quo"te.log').write_text("")
    found = offered(Place(5, f"{tmp_path}/", "path"))
    assert found == [
        Candidate(f'"{tmp_path}/my run/', "folder", more=True),
        Candidate(f'"{tmp_path}/quo\\"te.log"'),
    ]
    assert parsed(f"/run {found[1].text}")[1] == [f'{tmp_path}/quo"te.log']
    assert [c.text for c in offered(Place(5, f"{tmp_path}/.h", "path"))] == [f"{tmp_path}/.hidden/"]
    with pytest.raises(OSError):
        offered(Place(5, f"{tmp_path}/none/", "path"))


def test_sessions_and_applies_are_offered_as_they_are_now(tmp_path: Path) -> None:
    state, _ = every_kind(tmp_path)
    disk = OnDisk(state)
    rows = disk.offered(Place(8, "2026", "session"))
    assert [r.text for r in rows[:2]] == ["20260304-031500-a1b2c3", "20260304-041500-e5f6a7"]
    assert "unfinished: Is rank 3 stuck?" in rows[1].about and not any("\x1b" in r.about for r in rows)
    assert not {"20250101-000000-old", "20250102-000000-bad"} & {r.text for r in rows}, "what does not open"
    assert [r.text for r in disk.offered(Place(8, "does it hang", "session"))] == ["20260304-011500-b2c3d4"]
    run = tmp_path / "run"
    run.mkdir()
    (run / "a.yaml").write_text("lr: 1\n")
    talk = talk_about(run)
    assert disk.offered(Place(6, "", "apply"), talk) == []
    repairs = Repairs(talk)
    made = Report.model_validate(report([run], [patch("P1", "a.yaml", "lr: 1\n", "lr: 2\n")]))
    done = repairs.carry_out(repairs.prepare(made))
    assert disk.offered(Place(6, "", "apply"), talk) == [], "read once while the list is open"
    disk.forget()
    (row,) = disk.offered(Place(6, "", "apply"), talk)
    assert row.text == done.ident and f"P1 in {run}/a.yaml" in row.about


def test_a_command_is_read_as_a_shell_would_and_a_slip_is_understood() -> None:
    named, arguments = parsed("/run '/data/my run' b\\ c")
    assert (named.name, arguments) == ("run", ["/data/my run", "b c"])
    assert parsed("/q")[0].name == "quit" and parsed("/HELP  ")[0].name == "help"
    for line, hint in {
        "/evidense E1": "did you mean /evidence?",
        "/hyp": "did you mean /hypotheses?",
        "/": "/help lists them",
        "/zzzz": "/help lists them",
        "/mnt/x/train.log is bad": "write a space before it",
        "/run": "as in /run",
        "/run 'a": "a quote is not closed",
    }.items():
        with pytest.raises(UsageError) as e:
            parsed(line)
        assert hint in str(e.value), line


def test_the_list_is_used_by_keys_and_goes_away(tmp_path: Path) -> None:
    (tmp_path / "run one").mkdir()
    prompt = Prompt(known=Known(evidence=[("E1", "first"), ("E2", "second")]))
    app = Stage(prompt, Input())  # tab would go there

    def sent() -> list[str]:
        return list({id(m): m.line for m in app.of(messages.Command)}.values())

    async def story(pilot: Pilot[Any]) -> None:
        prompt.focus()
        await pilot.press("slash", "h", "y", "enter")  # takes no words: is sent
        assert sent() == ["/hypotheses"]
        await pilot.press("slash", "e", "v", "i", "tab")
        assert prompt.text == "/evidence "
        await pilot.press("down", "down", "tab")
        assert prompt.text == "/evidence E2 "
        await pilot.press("enter", "slash", "e", "space", "enter")  # nothing typed, nothing chosen: all of it
        assert sent()[1:] == ["/evidence E2", "/e"]
        await pilot.press("slash", "e", "enter", "slash", "e", "down", "enter")  # its other name; then what was chosen
        assert sent()[3:] == ["/e"] and prompt.text == "/export "
        prompt.load("/theme contras")
        await pilot.press("t", "enter")
        assert prompt.text == "/theme doctor-contrast "
        await pilot.press("ctrl+u", "slash", "r", "e", "p", "escape", "enter")  # closed: as it stands
        assert sent()[-1] == "/rep"
        prompt.load(f"/run {tmp_path}/ru")
        await pilot.press("n")
        await settled(pilot, lambda: prompt._list.rows)
        await pilot.press("enter")
        assert prompt.text == f'/run "{tmp_path}/run one/'
        await pilot.press("quotation_mark", "enter")
        assert parsed(sent()[-1])[1] == [f"{tmp_path}/run one/"]
        prompt.load("/run /no/such/folder")
        await pilot.press("slash")
        await settled(pilot, lambda: prompt._list.option_count == 1 and "cannot" in str(prompt._list.options[0].prompt))
        await pilot.press("up", "tab")
        assert prompt.text == "/run /no/such/folder/"

    play(app, story, NARROW)
