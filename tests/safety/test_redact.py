"""Secrets: every kind of the table is caught behind every disguise, the same one gets the same name, logs stay readable."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.safety.redact import WINDOW, Redactor
from traindoctor.agent.safety.secret_kinds import Kind, kinds

from tests.safety.redaction_corpus import DISGUISES, TOKENS, Dice, Planted, disguised, disguised_values, planted

ROOT = Path(__file__).resolve().parent.parent.parent
PLANTED, DISGUISED, VALUES = list(planted()), list(disguised()), list(disguised_values())
KINDS = sorted({p.kind for p in PLANTED})


def left(one: Planted) -> str:
    """What of the secrets is still there, or is wrong with the text otherwise; empty where all is well."""
    redactor = Redactor()
    shown = redactor.redact(one.text)
    if any(secret in shown for secret in one.secrets) or not redactor.count:
        return f"{one.kind}, {one.way}: {one.text!r} became {shown!r}"
    if shown.count("\n") != one.text.count("\n"):
        return f"{one.kind}, {one.way}: lines of {one.text!r} became {shown!r}"
    return "" if redactor.redact(shown) == shown else f"{one.kind}, {one.way}: {shown!r} changes once more"


def test_the_corpus_is_large() -> None:
    assert len(PLANTED) >= 300 and len(KINDS) >= 60
    assert len(DISGUISED) >= 1000 and len({p.way for p in DISGUISED}) == len(DISGUISES) >= 24
    assert len(VALUES) >= 400


@pytest.mark.parametrize("kind", KINDS)
def test_no_planted_secret_stays(kind: str) -> None:
    assert not [wrong for p in PLANTED if p.kind == kind and (wrong := left(p))]


@pytest.mark.parametrize("way", DISGUISES)
def test_no_disguise_helps(way: str) -> None:
    assert not [wrong for p in DISGUISED if p.way == way and (wrong := left(p))]


@pytest.mark.parametrize("way", sorted({p.way for p in VALUES}))
def test_values_known_by_their_place_hide_no_better(way: str) -> None:
    assert not [wrong for p in VALUES if p.way == way and (wrong := left(p))]


def test_many_secrets_in_one_text() -> None:
    text = "\n".join(p.text for p in PLANTED)
    redactor = Redactor()
    shown = redactor.redact(text)
    assert not [p.kind for p in PLANTED for secret in p.secrets if secret in shown]
    assert shown.count("\n") == text.count("\n")
    assert len(redactor.found) >= 45


def test_each_row_finds_a_secret_that_was_planted_for_it() -> None:
    unproved = [
        (row.name, str(row.pattern.pattern)) for row in kinds().rows if not any(_proves(p, row) for p in PLANTED)
    ]
    assert not unproved


def _proves(one: Planted, row: Kind) -> bool:
    data = one.text.encode()
    found = [data[start:end] for start, end in row.matches(data, 0, len(data))]
    return any(s.encode() in f or f in s.encode() for f in found for s in one.secrets)


def test_each_kind_is_named_by_its_own_row() -> None:
    redactor = Redactor()
    for p in PLANTED:
        redactor.redact(p.text)
    assert {row.name for row in kinds().rows} <= set(redactor.found)


def test_a_word_that_a_window_cuts_off_is_no_secret() -> None:
    for size in range(WINDOW - 24, WINDOW):
        text = "a " * (size // 2) + " " * (size % 2) + "password: password: " * 800
        assert Redactor().redact(text) == text


def test_the_same_secret_keeps_its_name_and_others_get_their_own() -> None:
    one, two = "hf_" + "a" * 34, "hf_" + "b" * 34
    redactor = Redactor()
    assert redactor.redact(f"{one} {two} {one}") == "<SECRET:hf:1> <SECRET:hf:2> <SECRET:hf:1>"
    assert redactor.redact(one) == "<SECRET:hf:1>"
    assert (redactor.count, redactor.found) == (4, {"hf": 2})


def test_the_same_texts_in_the_same_order_come_out_the_same() -> None:
    texts = [p.text for p in PLANTED[:60]]
    first, second = Redactor(), Redactor()
    shown = [first.redact(text) for text in texts]
    assert [second.redact(text) for text in texts[:40]] == shown[:40]
    assert [first.redact(text) for text in texts] == shown


def test_a_secret_once_known_is_found_without_its_name() -> None:
    secret = Dice(9)(40, "0123456789abcdef")
    shown = Redactor().redact(f"login failed for {secret}\nWANDB_API_KEY={secret}\n")
    assert shown == "login failed for <SECRET:wandb:1>\nWANDB_API_KEY=<SECRET:wandb:1>\n"


def test_a_wrapped_secret_is_the_same_secret_and_the_next_line_stays() -> None:
    secret = TOKENS["hf"](Dice(3))
    shown = Redactor().redact(f"using {secret}\nusing {secret[:20]}\n{secret[20:]} now\nstep 12345 loss 2.1")
    assert shown == "using <SECRET:hf:1>\nusing <SECRET:hf:1>\n now\nstep 12345 loss 2.1"


def test_what_stands_around_stays() -> None:
    secret = TOKENS["openai-project"](Dice(3))
    assert Redactor().redact(f"a\x1b[1m{secret}\x1b[0m b") == "a\x1b[1m<SECRET:openai:1>\x1b[0m b"
    assert json.loads(Redactor().redact(json.dumps({"api_key": secret, "x": [1, "\n\u2028é"]}))) == {
        "api_key": "<SECRET:openai:1>", "x": [1, "\n\u2028é"]}  # fmt: skip


HARMLESS = [
    "tokens: 4096, pad_token: None, eos_token='</s>' pad_token: <pad> eos_token_id: 2",
    "num_tokens=163840 max_tokens = 4096 token_type_ids: [0, 1] tokens/s=81234.5 token=1234",
    "tokenizer.pad_token = tokenizer.eos_token",
    "password = os.environ['PASSWORD'] token=os.environ[\"X\"] key=$HF_TOKEN export HF_TOKEN=${HF_TOKEN}",
    "key: model.layers.0.self_attn.k_proj.weight key: value cache_key=3607b59d1a2b3c4d5e6f708192a3b4c5d6e7f809",
    "2026-03-04 02:43:49 step 4127 | loss 2.2974 | grad_norm 0.448 tokens_per_second_per_gpu: 3107.84",
    "commit 3607b59d1a2b3c4d5e6f708192a3b4c5d6e7f809 wandb: commit 3607b59d1a2b3c4d5e6f708192a3b4c5d6e7f809",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  model-00001-of-00002.safetensors",
    "run_id=6fa459ea-ee8a-3ca4-894e-db77e160355e trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "File \"/opt/train/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1553",
    "http://localhost:8000/update_weights https://huggingface.co/docs/hub/security-tokens",
    "hf_token=None hub_token: null secret=*** api_key: null \"api_key\": \"\" password: required",
    "sk-learn sk-learn-contrib-2021-stable scikit-learn==1.7.0 task-specific-head-finetuning-v2 google-auth==2.62.2",
    "mask_token: [MASK], image_token='<image>', bos_token=<|begin_of_text|>, next_token: the",
    "def login(token: str | None = None, password: Optional[str] = None, api_key: str = \"\"):",
    "Token indices sequence length is longer than the specified maximum (1024 > 512)",
    "Authorization failed: invalid credentials. Basic authentication required. bearer token missing",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5",
    "git@github.com:org/repo.git ssh://git@host:22/x user@node01:/data nccl://10.0.0.1:29500",
    "forward_pass: backward compress_pass=3 monkey: banana author=someone key_padding_mask=None",
]  # fmt: skip


@pytest.mark.parametrize("line", HARMLESS)
def test_ordinary_lines_stay(line: str) -> None:
    assert Redactor().redact(line) == line


@pytest.mark.parametrize("part", ["healthy", "incidents", "threads"])
def test_real_logs_stay_readable(part: str) -> None:
    """No line of the recorded runs holds a secret, so each redaction would be a false one."""
    lines, false = 0, {}
    for path in sorted((ROOT / "evals" / part).rglob("files/**/*")):
        if path.is_file() and path.stat().st_size < 5_000_000 and b"\0" not in (raw := path.read_bytes()):
            text = raw.decode("utf-8", "replace")
            lines += text.count("\n")
            redactor = Redactor()
            if redactor.redact(text) != text:
                false[str(path)] = redactor.found
    assert lines > 1000
    assert not false


PIECES = st.sampled_from([
    "token=", "password: ", "api_key", '"', "'", "\n", "\\", "\\n", "hf_", "sk-", "A" * 20, "aB3" * 12, "-----BEGIN ",
    "PRIVATE KEY-----", "://", "@", ":", "Bearer ", "\x1b[31m", "\u200b", "%3D", "\\u002d", "<SECRET:hf:1>", "<SECRET:",
    ">", "│", " ", "=", "eyJ", ".", "wandb ", "0f" * 20, "é", "\ud800", "&amp;", "Authorization", "login a password ",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=24).map("".join)))
def test_once_is_enough_and_lines_stay_lines(text: str) -> None:
    shown = Redactor().redact(text)
    assert Redactor().redact(shown) == shown
    assert shown.count("\n") == text.count("\n")


HOSTILE = [
    "a", "=", '"', "'", "\\", "\n", "token=", "secret", "a_", "://a:", "eyJ.", "eyJaaaaaaaaaaa", "wandb ", "curl -u ", "\x1b[",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "password: ", "Cookie: a=", "%25", "aGZfAb3d",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda unit: re.sub(r"\W", "_", unit))
def test_hostile_text_costs_no_more_than_its_length(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes that patterns are asked to look at: twice the text, at most about twice the work."""
    sizes = (65_536, 131_072, 262_144)
    work = [_searched(unit * (size // len(unit)), monkeypatch) for size in sizes]
    for size, before, after in zip(sizes, work, work[1:], strict=False):
        assert after <= 2.5 * max(before, size)


def _searched(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes that the patterns of all kinds together were tried on."""
    tried = [0]
    before = Kind.matches

    def counted(self: Kind, data: bytes, start: int, end: int, **how: bool) -> object:
        tried[0] += end - start
        return before(self, data, start, end, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Kind, "matches", counted)
        Redactor().redact(text)
    return tried[0]
