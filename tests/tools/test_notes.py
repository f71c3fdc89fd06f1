"""Lines of small files that bear on the question, cited as they stand."""

from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.tool import all_tools


def telling(folder, question):
    return all_tools()["telling_lines"](Workspace([folder], question=question))


def test_rare_words_of_the_question_find_their_line(tmp_path):
    (tmp_path / "train.log").write_text(
        "step 1 loss 2.0\nsoft format reward 0.0 of 16 answers\naccuracy reward 0.4\nstep 2 loss 1.9\n"
    )
    found = telling(tmp_path, "The soft format reward stays at zero, the others rise.")
    assert found.outcome == "finding"
    assert (found.evidence[0].file, found.evidence[0].line) == ("train.log", 2)


CODE = """\"\"\"The soft format reward, zero for any answer that is wrong.\"\"\"
import re


def soft_format_reward(responses, zero=0.0):
    # the soft format reward stays at zero where nothing is found
    return [re.match(PATTERN, r) for r in responses]
"""


def test_code_configs_and_data_are_no_events(tmp_path):
    (tmp_path / "rewards.py").write_text(CODE)
    (tmp_path / "launch.sh").write_text(
        "#!/bin/bash\n# the soft format reward stays at zero\npython rewards.py --reward soft_format\n"
    )
    (tmp_path / "grpo.yaml").write_text("reward: soft_format\nformat_reward: 0.0\n")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "what is a soft format reward of zero?"}\n')
    question = "The soft format reward stays at zero. What is wrong?"
    assert telling(tmp_path, question).outcome == "not_applicable"
    (tmp_path / "train.log").write_text(
        CODE + "Traceback (most recent call last):\n    reward = soft_format_reward(answers, 0.0)\n"
    )
    assert telling(tmp_path, question).outcome == "clean"


def test_a_binary_file_has_no_lines(tmp_path):
    (tmp_path / "run.log").write_bytes(b"soft format reward 0.0 mismatch\n\0\1\2")
    assert telling(tmp_path, "The soft format reward").outcome == "not_applicable"


def test_what_a_statement_printed_is_an_event_and_what_it_was_given_is_not(tmp_path):
    (tmp_path / "train.py").write_text(
        "for i in range(9):\n    print(f'answers without the tag: {count} of {total}')\n    print('sample:', answer)\n"
    )
    said = "sample: she said that answers without the tag are wrong, 3 of 4 of them, and that is not what was asked for"
    (tmp_path / "train.log").write_text(f"answers without the tag: 61 of 64\n{said}\n")
    found = telling(tmp_path, "Why do answers come without the tag?")
    assert [e.line for e in found.evidence if e.key == "log.telling"] == [1]


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


def test_a_row_among_many_and_a_listing_of_a_folder_tell_little(tmp_path):
    (tmp_path / "ls.txt").write_text(
        "".join(f"-rw-r--r-- 1 u u 29{i} Nov 1 net.epoch={i}.spring.pth\n" for i in (3, 5))
    )
    (tmp_path / "parts.log").write_text("".join(f"spring part {i} took 0.{i}\n" for i in range(9)))
    (tmp_path / "scores.csv").write_text("set,score\n" + "".join(f"spring_{c},0.5\n" for c in "abcdefghijklmn"))
    assert telling(tmp_path, "Why is spring slow?").outcome == "clean"
    (tmp_path / "few.log").write_text("spring valve 7 is shut\n")
    assert [e.file for e in telling(tmp_path, "Why is spring slow?").evidence] == ["few.log"]


def test_of_statements_that_print_the_same_the_logger_names_the_one(tmp_path):
    (tmp_path / "tide").mkdir()
    (tmp_path / "tide" / "__init__.py").write_text("")
    for name in ("score", "export"):
        code = f"import logging\nlog = logging.getLogger('tide.{name}')\n\ndef run(data):\n    log.info(f'rows kept: {{len(data)}}')\n"
        (tmp_path / "tide" / f"{name}.py").write_text(code)
    main = "from tide import export, score\nprint('tide tables of the estuary')\nscore.run([])\n"
    (tmp_path / "main.py").write_text(main)
    (tmp_path / "out.log").write_text("tide tables of the estuary\nINFO:tide.score - rows kept: 24\n")
    once = [(e.line, e.value) for e in telling(tmp_path, "").evidence if e.key == "log.once"]
    assert once == [(1, "main.py:2"), (2, "tide/score.py:5")]
    (tmp_path / "out.log").write_text("tide tables of the estuary\nrows kept: 24\n")
    assert [e.line for e in telling(tmp_path, "").evidence if e.key == "log.once"] == [1]
