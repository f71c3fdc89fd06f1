"""Lines of small files that bear on the question, cited as they stand."""

from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import all_tools


def telling(folder, question):
    return all_tools()["telling_lines"](Workspace([folder], question=question))


def test_rare_words_of_the_question_find_their_line(tmp_path):
    (tmp_path / "rewards.py").write_text(
        "import re\n\ndef accuracy_reward(x):\n    return 1.0\n\ndef soft_format_reward(responses):\n"
        "    return [re.match(PATTERN, r) for r in responses]\n"
    )
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    found = telling(tmp_path, "The soft format reward stays at zero, the others rise.")
    assert found.outcome == "finding"
    assert ("rewards.py", 6) in [(e.file, e.line) for e in found.evidence]


def test_words_of_difference_count_without_a_question(tmp_path):
    (tmp_path / "check.txt").write_text("rank 0 embedding sum 18.44\nrank 1 embedding sum -7.92 mismatch\n")
    found = telling(tmp_path, "")
    assert [(e.line, e.text) for e in found.evidence] == [(2, "rank 1 embedding sum -7.92 mismatch")]


def test_an_unrelated_question_quotes_nothing(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step {i} loss {3 - i / 100}\n" for i in range(50)))
    assert telling(tmp_path, "Is it ok?").outcome == "clean"


def test_large_files_are_left_to_the_log_tools(tmp_path):
    (tmp_path / "train.log").write_text("rank 1 mismatch\n" * 2000)
    assert telling(tmp_path, "mismatch").outcome == "not_applicable"
