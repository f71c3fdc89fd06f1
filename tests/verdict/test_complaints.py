"""What a clean end does not refute: who complains of quality, speed or a setting is not told that all is well."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import RootCause
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.verdict.meaning import complaints

LOG = (
    "".join(f"step {n}/200 loss {2.5 * 0.98**n + 0.3:.4f} lr 1.00e-04\n" for n in range(200)) + "Training completed.\n"
)


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("An epoch takes forty minutes for 5 MB of text, why?", "speed"),
        ("Only 300 tokens per second on this card", "speed"),
        ("The samples are the same two words again and again", "outputs"),
        ("It has learned nothing about dates", "outputs"),
        ("exact_match is 0.0 though the loss is low", "scores"),
        ("Both loss curves are identical for two values of beta", "compared"),
        ("I asked for 20 epochs and there are three", "asked_for"),
        ("Why does my training stop so early?", "asked_for"),
        ("After resuming the rate starts over", "carried_over"),
        ("After some epochs the whole computer shuts down", "machine"),
        ("This script turns my workstation off", "machine"),
        ("Why does the server reboot under load?", "machine"),
    ],
)
def test_it_is_heard(question: str, kind: str) -> None:
    assert kind in complaints(question)


@pytest.mark.parametrize(
    "question",
    [
        "Is my run ok?",
        "Why did it fail?",
        "There are tracebacks in my log, what broke?",
        "Is the loss of step 40 a problem?",
        "There is a long warning about unused parameters. Does it make the training slow?",
        "I set the rate to 1e-4. Is this run ok?",
        "Does my model overfit or forget?",
        "On this machine the loss goes down, is it ok?",
        "Why is validation better than training?",
    ],
)
def test_a_worry_about_lines_and_curves_is_none(question: str) -> None:
    assert complaints(question) == []


@pytest.mark.parametrize(
    "question", ["The samples are gibberish, why?", "Why is it so slow?", "Why is the BLEU score so low?"]
)
def test_a_sound_end_is_a_less_sure_answer_to_a_complaint(tmp_path: Path, question: str) -> None:
    plain, complained = (_answered(tmp_path / name, asked) for name, asked in (("a", "Is my run ok?"), ("b", question)))
    assert plain.id == "none.healthy"
    assert complained.id != "none.healthy" or complained.confidence < plain.confidence - 0.05


def test_why_it_failed_is_answered_by_an_end_that_was_reached(tmp_path: Path) -> None:
    assert _answered(tmp_path, "Why did it fail?").id == "none.healthy"


def _answered(folder: Path, question: str) -> RootCause:
    run = folder / "run"
    run.mkdir(parents=True)
    (run / "train.log").write_text(LOG)
    *_, last = diagnose(Workspace([run], question=question), question, state=folder / "state", history=False)
    assert isinstance(last, ReportReady)
    return last.report.root_cause


@pytest.mark.parametrize(
    "question",
    [
        "The adapter I merged answers exactly like the base checkpoint it was made from.",
        "Speculative decoding accepts 5 % of the draft tokens of the head we added",
    ],
)
def test_who_asks_about_something_particular_is_heard(question: str) -> None:
    assert "particular" in complaints(question)


@pytest.mark.parametrize(
    "question",
    [
        "Our training died at night on eight GPUs after 4,000 steps. Why did it stop?",
        "The loss goes up and down and the gradient norm is high at times. What is wrong?",
        "There are several warnings at the start of my training, should I stop the run and fix the optimizer?",
        "Ist mit meinem Lauf von heute Nacht alles in Ordnung?",
    ],
)
def test_what_every_run_tells_of_is_nothing_particular(question: str) -> None:
    assert "particular" not in complaints(question)


CODE = "loader = DataLoader(ds, batch_size=32, shuffle=False)\nfor batch in loader:\n    step(batch)\n"


def test_code_that_may_be_slow_answers_only_who_asks_about_speed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.py").write_text(CODE)
    (tmp_path / "run" / "train.log").write_text(LOG.removesuffix("Training completed.\n"))

    def believed(question: str) -> float:
        *_, last = diagnose(
            Workspace([tmp_path / "run"], live=False), question, state=tmp_path / "state", history=False
        )
        assert isinstance(last, ReportReady)
        ranked = {d.id: d.confidence for d in last.report.differential}
        return ranked.get("speed.data_starvation", 0.0)

    other, speed = (
        believed("Each epoch sees a quarter of the distinct samples, why?"),
        believed("Why are the GPUs idle?"),
    )
    assert other < 0.15 and speed > 2 * other
