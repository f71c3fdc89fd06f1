"""No secret of the corpus is in a bundle or a paper, wherever it was planted."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import random
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.issue_paper import bug_report
from traindoctor.agent.telling.collect.report_copy import diagnosed
from traindoctor.agent.telling.collect.ticket import infrastructure_ticket

from tests.safety.redaction_corpus import TOKENS, Dice, Planted, disguised, disguised_values, planted
from tests.telling.collect.runs import bundled, everything, unpacked


def leaks(data: bytes, texts: list[Planted]) -> list[tuple[str, str]]:
    shown = data.decode(errors="replace")
    return [(p.kind, p.way) for p in texts for s in p.secrets if len(s) > 5 and s in shown]


def filled(folder: Path, texts: list[Planted]) -> None:
    """The corpus spread over logs, configs, packed logs, notes and a long log."""
    folder.mkdir()
    dice = random.Random(1)
    shuffled = [p.text + "step 13 loss 2.30 lr 1e-4\n" * 9 for p in texts]
    dice.shuffle(shuffled)
    quarter = len(shuffled) // 4
    trouble = "Traceback (most recent call last):\n  File \"/w/train.py\", line 3, in <module>\n    main()\nRuntimeError: broken\n"
    (folder / "train.log").write_text("".join(shuffled[:quarter]) + trouble)
    (folder / "run.sh").write_text("#!/bin/bash\n" + "".join(shuffled[quarter : 2 * quarter]))
    (folder / "node.log.gz").write_bytes(gzip.compress("".join(shuffled[2 * quarter : 3 * quarter]).encode()))
    quiet = "".join(f"2026-01-01 00:00:00 INFO step {i} loss {2 - i * 1e-6:.4f}\n" for i in range(20_000))
    (folder / "long.log").write_text(quiet + "".join(shuffled[3 * quarter :]) + quiet)


def test_the_corpus_planted_everywhere(tmp_path: Path) -> None:
    texts = [p for i, p in enumerate(planted(each=1)) if i % 2 == 0]
    filled(tmp_path / "job", texts)
    bundled(tmp_path / "job", tmp_path / "b.tar.gz")
    assert leaks(everything(unpacked(tmp_path / "b.tar.gz", tmp_path / "x")), texts) == []


def test_disguised_ones_too(tmp_path: Path) -> None:
    texts = [p for i, p in enumerate(disguised()) if i % 16 == 0]
    filled(tmp_path / "job", texts)
    bundled(tmp_path / "job", tmp_path / "b.tar.gz", diagnose=False)
    assert leaks(everything(unpacked(tmp_path / "b.tar.gz", tmp_path / "x")), texts) == []


def test_names_columns_keys_and_dumps(tmp_path: Path) -> None:
    """File and folder names, columns of tables, keys of JSON, strings of a pickled dump, a flag in a report's question."""
    dice, job = Dice(11), tmp_path / "job"
    secrets = [TOKENS[k](dice) for k in ("hf", "github", "wandb", "nvidia", "pypi", "groq", "aws")]
    name, column, key, inside, asked, plain, encoded = secrets
    (job / f"run-{name}").mkdir(parents=True)
    (job / f"run-{name}" / f"metrics_{column}.csv").write_text(f"step,loss,loss_{column}\n1,2.0,3.0\n2,1.9,2.9\n")
    (job / "config.json").write_text(json.dumps({"learning_rate": 1e-4, f"tags_{key}": {"x": 1}}))
    dump = {"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0]"}},
            "entries": [{"record_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0,
                         "op_id": 1, "profiling_name": f"nccl:{inside}", "time_created_ns": 1, "input_sizes": [[1]],
                         "output_sizes": [[1]], "input_dtypes": ["Float"], "output_dtypes": ["Float"], "state": "completed",
                         "retired": True, "is_p2p": False, "frames": [{"name": inside, "filename": "a.py", "line": 1}]}]}  # fmt: skip
    (job / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump))
    (job / "train.log").write_text(f"step 1 loss 2.0\nHF_TOKEN={plain} set\n{base64.b64encode(encoded.encode()).decode()}\nValueError: {plain}\n")
    bundled(job, tmp_path / "b.tar.gz", f"why does --hub-token {asked} fail?")
    data = everything(unpacked(tmp_path / "b.tar.gz", tmp_path / "x"))
    assert not [s for s in secrets if s.encode() in data]
    assert base64.b64encode(encoded.encode())[:20] not in data and b"\x80\x04" not in data


def test_what_one_file_tells_another_may_not_show(tmp_path: Path) -> None:
    job, password = tmp_path / "job", "Gk7" + "wq2Lmz9RtY4v"
    job.mkdir()
    (job / "a_train.log").write_text(f"step 1 loss 2.0\nopening {password} now\n")
    (job / "zz.env").write_text(f"DB_PASSWORD={password}\n")
    bundled(job, tmp_path / "b.tar.gz")
    assert password.encode() not in everything(unpacked(tmp_path / "b.tar.gz", tmp_path / "x"))


def test_papers_hold_none(tmp_path: Path) -> None:
    texts = [p for i, p in enumerate(planted(each=1)) if i % 4 == 0 or p.kind == "password"]
    filled(tmp_path / "job", texts)
    secret = next(p for p in texts if p.kind == "password").secrets[0]
    (tmp_path / "job" / "train.yaml").write_text(f"learning_rate: 1e-4\nhub_token: {TOKENS['hf'](Dice(2))}\n")
    (tmp_path / "job" / "err.log").write_text(f"step 1 loss 2\nValueError: cannot log in with {secret} and {TOKENS['hf'](Dice(2))}\n")
    ws = Workspace([tmp_path / "job"], live=False)
    report = diagnosed(ws, f"what is wrong with password={secret}?")
    for text in (bug_report(ws, report), infrastructure_ticket(ws, report, force=True)):
        assert leaks(text.encode(), texts) == [] and TOKENS["hf"](Dice(2)) not in text


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["planted", "disguised", "values"])
def test_the_whole_corpus(kind: str, tmp_path: Path) -> None:
    texts = list({"planted": planted, "disguised": disguised, "values": disguised_values}[kind]())
    filled(tmp_path / "job", texts)
    bundled(tmp_path / "job", tmp_path / "b.tar.gz", diagnose=False)
    assert leaks(everything(unpacked(tmp_path / "b.tar.gz", tmp_path / "x")), texts) == []
