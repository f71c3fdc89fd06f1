"""Secrets: every kind of the table is caught, the same one gets the same name, and logs stay readable."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from traindoctor.agent.redact import KINDS, Redactor

ROOT = Path(__file__).resolve().parent.parent
RANDOM = random.Random(4)


def letters(n: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """A made-up secret; made at run time, so that no scanner takes this file for a leak."""
    return "".join(RANDOM.choice(alphabet) for _ in range(n))


HEX = "0123456789abcdef"
PLANTED = [
    ("hf", s := "hf_" + letters(34, string.ascii_letters), f"login(token={s!r})"),
    ("openai", s := "sk-" + letters(48), f"OPENAI_KEY in env: {s}"),
    ("openai", s := "sk-proj-" + letters(90), f"Incorrect API key provided: {s}."),
    ("anthropic", s := "sk-ant-" + "api03-" + letters(80), f'"key": "{s}"'),
    ("wandb", s := letters(40, HEX), f"export WANDB_API_KEY={s}"),
    ("wandb", s := letters(40, HEX), f"wandb: logging in with {s}"),
    ("wandb", s := "wandb_v1_" + letters(60), f"key {s}"),
    ("nvidia", s := "nvapi-" + letters(64), f"NGC {s}"),
    ("aws", s := "AKIA" + letters(16, string.ascii_uppercase + "234567"), f"aws_access_key_id={s}"),
    ("github", s := "ghp_" + letters(36), f"git clone with {s}"),
    ("github", s := "github_pat_" + letters(60), f"remote: {s}"),
    ("gitlab", s := "glpat-" + letters(20), f"PRIVATE-TOKEN {s}"),
    ("google", s := "AIza" + letters(35), f"?key={s}"),
    ("slack", s := "xox" + "b-" + letters(40, string.digits), f"slack {s}"),
    ("pypi", s := "pypi-" + letters(80), f"twine {s}"),
    ("jwt", s := f"eyJ{letters(20)}.eyJ{letters(40)}.{letters(30)}", f"id {s} end"),
    ("url", s := letters(14), f"pip install --index-url https://bob:{s}@host/simple"),
    ("url", s := letters(14), f"redis://:{s}@10.0.0.1:6379".replace("//:", "//u:")),
    ("signature", s := letters(64, HEX), f"GET /b/k?X-Amz-Date=1&X-Amz-Signature={s}&x=1"),
    ("header", s := letters(40), f"curl -H 'Authorization: Bearer {s}'"),
    ("bearer", s := letters(40), f"sent bearer {s}"),
    ("netrc", s := letters(20), f"machine api.host login user password {s}"),
    ("flag", s := letters(24), f"train.py --hub-token {s} --lr 1e-4"),
    ("named", s := letters(20), f"DB_PASSWORD: {s}"),
    ("named", s := letters(30), f"'secret_key': '{s}',"),
    ("pem", s := letters(60), f"-----BEGIN RSA PRIVATE KEY-----\n{s}\n-----END RSA PRIVATE KEY-----"),
]


@pytest.mark.parametrize(("kind", "secret", "line"), PLANTED, ids=lambda v: v if len(v) < 10 else "")
def test_planted_secrets_are_taken_out(kind: str, secret: str, line: str) -> None:
    redactor = Redactor()
    shown = redactor.redact(line)
    assert secret not in shown
    assert f"<SECRET:{kind}:1>" in shown
    assert redactor.count >= 1
    assert redactor.redact(shown) == shown  # once is enough


def test_every_kind_has_a_proof() -> None:
    assert {k.name for k in KINDS} == {kind for kind, _, _ in PLANTED}


def test_the_same_secret_keeps_its_name_and_others_get_their_own() -> None:
    one, two = "hf_" + "a" * 34, "hf_" + "b" * 34
    redactor = Redactor()
    assert redactor.redact(f"{one} {two} {one}") == "<SECRET:hf:1> <SECRET:hf:2> <SECRET:hf:1>"
    assert redactor.redact(one) == "<SECRET:hf:1>"
    assert (redactor.count, redactor.found) == (4, {"hf": 2})


HARMLESS = [
    "tokens: 4096, pad_token: None, eos_token='</s>'",
    "num_tokens=163840 max_tokens = 4096 token_type_ids: [0, 1]",
    "tokenizer.pad_token = tokenizer.eos_token",
    "password = os.environ['PASSWORD']",
    "key: model.layers.0.self_attn.q_proj.weight",
    "2026-03-04 02:43:49 step 4127 | loss 2.2974 | grad_norm 0.448",
    "commit 3607b59d1a2b3c4d5e6f708192a3b4c5d6e7f809",
    "File \"/opt/train/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1553",
    "http://localhost:8000/update_weights",
    "hf_token=None hub_token: null secret=***",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_ordinary_lines_stay(line: str) -> None:
    assert Redactor().redact(line) == line


def test_real_logs_stay_readable() -> None:
    redactor, lines = Redactor(), 0
    for path in sorted((ROOT / "evals" / "incidents").glob("*/files/*")):
        text = path.read_text(errors="replace") if path.is_file() else ""
        lines += text.count("\n")
        redactor.redact(text)
    assert lines > 1000
    assert redactor.count <= lines / 10_000, redactor.found


def test_a_hostile_line_costs_no_time() -> None:
    import time

    began = time.perf_counter()
    for text in ("token=" * 20_000, "://" + "a:" * 50_000, "-----BEGIN PRIVATE KEY-----" * 2_000, "eyJ." * 30_000,
                 "wandb " * 20_000, "secret" * 20_000, "a_" * 50_000 + "token"):  # fmt: skip
        Redactor().redact(text)
    assert time.perf_counter() - began < 20
