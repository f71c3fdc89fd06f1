"""What a client of `doctor mcp` is offered and may see, apart from the protocol."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.types import Risk
from traindoctor.agent.doors.mcp.mcp_offers import Answer, Offer, listed, offers, read
from traindoctor.agent.doors.mcp.mcp_outgoing import CAP, KEPT, Outgoing, Runs, cut
from traindoctor.agent.tools.tool import all_tools

LOG = "step 1 loss 2.31\nstep 2 loss 2.29\nRuntimeError: it broke here\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(LOG)
    return folder.resolve()


def silent(done: int, text: str) -> None:
    """Nobody listens to the progress."""


def ask(offer: Offer, **given: Any) -> Answer:
    """A call as the server makes it, failures told in one line."""
    from traindoctor.agent.doors.mcp.mcp_server import _answered

    return _answered(offer, given, silent, Outgoing())


def test_every_reading_tool_is_offered_with_its_own_schema_and_nothing_above() -> None:
    known = offers(Runs([]), Outgoing())
    reading = {t.name for t in all_tools().values() if t.risk is Risk.READ}
    assert set(known) == reading | {"diagnose", "search"} and not reading & {"diagnose", "search"}
    for name in reading:
        own, offered = all_tools()[name].schema()["parameters"], dict(known[name].schema)
        assert offered["properties"].pop("run")["type"] == "string" and offered["required"][-1] == "run"
        offered["required"] = offered["required"][:-1]
        assert offered["required"] == own.get("required", [])
        assert offered == {**own, "properties": own["properties"], "required": offered["required"]}
        assert known[name].description == all_tools()[name].description


def test_a_client_with_little_room_is_offered_less() -> None:
    assert list(offers(Runs([]), Outgoing(), ["read_lines"])) == ["diagnose", "search", "read_lines"]
    for name in ("no_such", "nccl_test"):
        with pytest.raises(UsageError, match="only reads"):
            offers(Runs([]), Outgoing(), [name])


def test_a_named_run_need_not_be_named_again(run: Path) -> None:
    offer = offers(Runs([str(run)]), Outgoing())["grep_logs"]
    assert "run" not in offer.schema["required"] and "1 lines match" in ask(offer, pattern="it broke").text
    assert "1 lines match" in ask(offer, pattern="it broke", run="train.log").text
    assert "1 lines match" in ask(offer, pattern="it broke", run=str(run / "train.log")).text


def test_full_paths_of_files_are_understood(run: Path) -> None:
    offer = offers(Runs([]), Outgoing())["read_lines"]
    answer = ask(offer, run=str(run), file=str(run / "train.log"), start=3)
    assert "it broke here" in answer.text and not answer.failed


OUTSIDE = ["/etc", "..", "../other", "~", "/", "run/../../other", "\0", "-", "/dev/stdin", "~nobody-at-all/x", "link"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_named_runs_is_read(run: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.parent / "other").mkdir()
    (run.parent / "other" / "secret.log").write_text("what nobody may see\n")
    (run / "link").symlink_to(run.parent / "other")
    monkeypatch.chdir(run)
    known = offers(Runs([str(run)]), Outgoing())
    for name, given in (("list_files", {}), ("grep_logs", {"pattern": "."}), ("diagnose", {"question": "?"})):
        answer = ask(known[name], run=path, **given)
        assert answer.failed, answer.text
        assert "\n" not in answer.text and "secret" not in answer.text
    assert ask(known["diagnose"], question="?", good=path).failed


def test_no_argument_of_any_tool_leads_outside(run: Path) -> None:
    """Every text argument of every tool, given a path of what is not the run's."""
    outside = run.parent / "lib" / "python3.11" / "site-packages" / "canary_package-1.0.dist-info"
    outside.mkdir(parents=True)
    (outside / "METADATA").write_text("Name: canary-package\nVersion: 1.0\nRequires-Dist: nowhere-to-be-found\n")
    (run.parent / "config.json").write_text('{"hidden_size": 77123, "model_type": "llama", "canary": "canary-package"}')
    known, tried = offers(Runs([str(run)]), Outgoing()), 0
    for tool in all_tools().values():
        for name, field in tool.arguments.model_fields.items():
            if tool.risk is not Risk.READ or field.annotation is not str:
                continue
            for path in (run.parent, run.parent / "config.json", Path("..") / "config.json"):
                asked = str(path)
                answer = ask(known[tool.name], **{name: asked})
                tried += 1
                assert "canary" not in answer.text.replace(asked, ""), (tool.name, name)
                assert "77123" not in answer.text
    assert tried > 60


def test_without_named_runs_the_client_says_where(run: Path) -> None:
    known = offers(Runs([]), Outgoing())
    assert "name the folder" in ask(known["scan_logs"]).text and ask(known["scan_logs"]).failed
    assert "must be text" in ask(known["scan_logs"], run=["a"]).text
    assert not ask(known["look_up"], run="", query="Xid 79").failed
    assert "no run is named" in ask(known["diagnose"], run="", question="why did it die?").text


def test_odd_files_are_no_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="neither a folder nor a regular file"):
        Runs([]).workspace(str(tmp_path / "pipe"))
    with pytest.raises(UsageError, match="carries the protocol"):
        Runs(["-"])


def test_readings_are_kept_until_a_file_changes(run: Path) -> None:
    runs, made = Runs([]), []

    def reading(question: str = "") -> int:
        return runs.workspace(str(run), question=question).memo("made", lambda: made.append(1) or len(made))

    assert [reading(), reading("why?"), reading()] == [1, 1, 1]
    with (run / "train.log").open("a") as f:
        f.write("another line\n")
    assert [reading(), reading()] == [2, 2]
    (run / "new.log").write_text("one more file\n")
    assert reading() == 3 and runs.workspace(str(run), question="why?").question == "why?"


def test_a_sound_run_stays_beside_until_another_is_named(run: Path, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    (good / "train.log").write_text("step 1 loss 2.3\n")
    runs = Runs([])
    assert [f.name for f in runs.workspace(str(run), str(good)).files] == ["r1/train.log", "r2/train.log"]
    assert [f.name for f in runs.workspace(str(run)).files] == ["r1/train.log", "r2/train.log"]
    assert [f.name for f in runs.workspace(str(run), "").files] == ["train.log"]


def test_few_workspaces_stay_in_memory(tmp_path: Path) -> None:
    runs = Runs([])
    for number in range(KEPT + 3):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "train.log").write_text(LOG)
        runs.workspace(str(folder))
    assert len(runs._kept) == KEPT


def test_a_run_that_is_gone_is_told(run: Path) -> None:
    offer = offers(Runs([str(run)]), Outgoing())["list_files"]
    (run / "train.log").unlink()
    run.rmdir()
    assert "no such path" in ask(offer).text


def test_long_texts_are_cut_with_exact_counts(run: Path) -> None:
    text = "".join(f"line {n} of many\n" for n in range(3000))
    shown, told = cut(text)
    assert len(shown.encode()) <= CAP
    assert f"cut: {len(shown)} of {len(text)} bytes, {shown.count(chr(10))} of 3000 lines" in told
    assert cut("é" * CAP)[0] == "é" * (CAP // 2)
    (run / "train.log").write_text("".join(f"E{n} {'x' * 390}\n" for n in range(300)))
    answer = ask(offers(Runs([]), Outgoing())["grep_logs"], run=str(run), pattern="E", limit=200)
    assert "300 lines match 'E', the first 200 are shown" in answer.text and "[cut: " in answer.text
    assert "read_lines" in answer.text and len(answer.text.encode()) < CAP + 500


def test_a_value_that_only_its_name_makes_a_secret_is_taken_out() -> None:
    out = Outgoing()
    shown = out.data(
        {"api_key": "q8Zk2mXw91LpVt", "evidence": [{"key": "settings.hub_token", "value": "q8Zk2mXw91LpVt"}]}
    )
    assert "q8Zk2mXw91LpVt" not in str(shown)
    assert out.data({"key": "loss.first_nan_step", "value": 4127}) == {"key": "loss.first_nan_step", "value": 4127}


def test_reports_of_other_runs_stay_where_they_are(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.log").write_text(LOG)
    answer = ask(offers(Runs([str(other)]), Outgoing())["diagnose"], question="what broke?")
    assert answer.structured is not None
    session = answer.structured["session"]
    theirs, ours = Runs([str(run)]), Runs([str(other)])
    assert [r.uri for r in listed(ours, Outgoing())] == [f"report://{session}"]
    assert listed(theirs, Outgoing()) == [] and session in read(f"report://{session}", ours, Outgoing())[1]
    with pytest.raises(UsageError, match="outside the folders"):
        read(f"report://{session}", theirs, Outgoing())
    assert "outside the folders" in ask(offers(theirs, Outgoing())["diagnose"], question="why?", session=session).text
    follow = ask(offers(Runs([]), Outgoing())["diagnose"], run="", question="and what now?", session=session)
    assert follow.structured is not None and follow.structured["session"] == session


def test_a_report_by_a_relative_path_is_not_taken_for_one_of_ours(run, tmp_path, monkeypatch):
    """The same name below another folder is another run."""
    from traindoctor.agent.reading.run.workspace import Workspace
    from traindoctor.agent.session.session import diagnose

    (tmp_path / "elsewhere" / "run").mkdir(parents=True)
    (tmp_path / "elsewhere" / "run" / "train.log").write_text(LOG)
    monkeypatch.chdir(tmp_path / "elsewhere")
    list(diagnose(Workspace([Path("run")]), "what broke?"))
    monkeypatch.chdir(tmp_path)
    assert listed(Runs(["run"]), Outgoing()) == [] and len(listed(Runs([]), Outgoing())) == 1


@pytest.mark.parametrize(
    "uri", ["report://../x", "report://none-such", "playbook://../../etc/passwd", "file:///etc/passwd"]
)
def test_no_resource_lies_elsewhere(uri: str) -> None:
    with pytest.raises(UsageError):
        read(uri, Runs([]), Outgoing())


def test_playbooks_are_read_by_address() -> None:
    kind, text = read("playbook://memory/fragmentation", Runs([]), Outgoing())
    assert kind == "text/markdown" and "cause: memory.fragmentation" in text


@pytest.mark.parametrize("session", ["../up", "a/b", "none-such", "x" * 200])
def test_a_session_must_be_one(run: Path, session: str) -> None:
    answer = ask(offers(Runs([str(run)]), Outgoing())["diagnose"], question="why?", session=session)
    assert answer.failed and "\n" not in answer.text
