"""A conversation as a file: every question is in it, no secret is, and nothing is overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.chat.chat_export import export_path, exported, write_export
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import CitedEvidence, Report, RootCause, Sentence
from traindoctor.agent.reading.run.workspace import Workspace

from tests.sample import HOSTILE, sample
from tests.telling.page.parsed import checked

KEY = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbC"


def answer(question: str, text: str, **line: object) -> Report:
    evidence = [CitedEvidence(id="E7", key="log.line", kind="line", file="rank0.log", line=3, text=text, **line)]  # type: ignore[arg-type]
    said = [Sentence(text=f"rank0.log:3 says {text}", cites=["E7"])]
    return Report(status="answer", question=question, root_cause=RootCause(id=None, title="An answer"),
                  summary=said, evidence=evidence)  # fmt: skip


def talk() -> list[Report]:
    """A wrong guess, the diagnosis, and two answers after it."""
    first = sample(
        question="Is it the data?", status="likely", root_cause=RootCause(id="data.empty_samples", title="Empty")
    )
    return [first, sample(), answer("Show line 3", f"HF_TOKEN={KEY}"), answer(HOSTILE, HOSTILE)]


def test_a_page_has_the_last_diagnosis_and_every_question() -> None:
    page, _ = checked(exported(talk(), ".HTML").decode())
    said = page.said()
    title, _, rest = said.rpartition("Also asked")
    assert "loss.fp16_overflow" in title and "Is it the data?" not in title
    assert rest.index("Is it the data?") < rest.index("Show line 3") < rest.rindex("alert(1)")
    assert "data.empty_samples" in rest and "rank0.log:3 says" in rest
    assert KEY not in said and "\x1b" not in said and "\u202e" not in said
    alone, _ = checked(exported(talk()[1:2], ".html").decode())
    assert "Also asked" not in alone.said()


def test_a_page_of_answers_alone_is_of_the_last_one() -> None:
    page, _ = checked(exported([answer("one?", "a"), answer("two?", "b")], ".html").decode())
    title, _, rest = page.said().rpartition("Also asked")
    assert "two?" in title and "one?" in rest and "one?" not in title


def test_no_form_holds_a_secret_that_the_lines_around_tell(tmp_path: Path) -> None:
    """The line that is cited is the middle of a key: only the file tells that it is one."""
    body = [f"{n:02}" + "QUFBQkJCQ0NDRERERUVFRkZGR0dHSEhISUlJSkpKS0tLTExMTU1NTk5OT09P" for n in range(8)]
    lines = ["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", ""]
    (tmp_path / "rank0.log").write_text("\n".join(lines))
    offset = sum(len(line) + 1 for line in lines[:4])
    reports = [sample(), answer("Show it", body[3], offset=offset)]
    workspace = Workspace([tmp_path], live=False)
    for suffix in (".md", ".json", ".html"):
        assert body[3] not in exported(reports, suffix, workspace).decode(), suffix
    assert body[3] in exported(reports, ".json").decode(), "without the file nothing tells"


def test_json_can_be_read_again_and_forms_are_named() -> None:
    found = [Report.model_validate(r) for r in json.loads(exported(talk(), ".json"))]
    assert [r.question for r in found][:3] == ["Is it the data?", talk()[1].question, "Show line 3"]
    assert exported(talk(), ".md").count(b"Asked:") == 4
    for suffix, why in ((".txt", "no form .txt"), ("", "without a suffix"), (".\x1b[2J", r"no form \.\\x1b")):
        with pytest.raises(UsageError, match=why):
            exported(talk(), suffix)
    with pytest.raises(UsageError, match="nothing to export"):
        exported([], ".md")


def test_only_new_files_are_written(tmp_path: Path) -> None:
    file = export_path(str(tmp_path / "talk.md"))
    write_export(b"one", file)
    with pytest.raises(UsageError, match="exists already"):
        write_export(b"two", file)
    (tmp_path / "link.md").symlink_to(tmp_path / "nowhere.md")
    with pytest.raises(UsageError, match="exists already"):
        write_export(b"two", tmp_path / "link.md")
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_export(b"two", tmp_path / "no" / "talk.md")
    assert file.read_bytes() == b"one" and not (tmp_path / "nowhere.md").exists()
    for name, why in (
        ("~nosuchuser/x.md", "whose home"),
        ("a\0.md", "names no file"),
        ("x.txt", "no form"),
        (" ", "empty"),
    ):
        with pytest.raises(UsageError, match=why):
            export_path(name)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_disk_that_fills_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(self: Path, *args: object, **more: object) -> object:
        real(self, "xb").close()
        return real(Path("/dev/full"), "wb", buffering=0)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UsageError, match="No space left"):
        write_export(b"data", tmp_path / "talk.md")
    assert not list(tmp_path.iterdir())
