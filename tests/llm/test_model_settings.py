"""Which model is asked: the highest level wins, a key stays with its server, and nothing is asked that nobody named."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.config import settle
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.doors.commands.diagnosis_options import model_settings, within_the_run
from traindoctor.agent.llm.model_settings import ModelSettings, tightened

KEY = "sk-proj-" + "k" * 40


def resolved(text: str = "", **options: Any) -> ModelSettings | None:
    """What holds with this config file and these options."""
    Path(os.environ["DOCTOR_CONFIG"]).write_text(text)
    settle.cache_clear()
    return model_settings(settle(), **options)


def asked(text: str = "", **options: Any) -> ModelSettings:
    """The same where a model must have been named."""
    found = resolved(text, **options)
    assert found is not None
    return found


AMBIENT = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_MODEL", "OPENAI_LOG")
UNNAMED = """
max_calls = 3
base_url = "http://team:8000/v1"
api_key_env = "TEAM_KEY"
temperature = 0.1
[profiles.local]
model = "small"
[prices."small"]
in = 1
out = 2
"""


@pytest.mark.parametrize("text", ["", UNNAMED, 'profile = "bare"\n[profiles.bare]\nbase_url = "http://a/v1"\n'])
def test_variables_and_settings_without_a_model_name_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AMBIENT:
        monkeypatch.setenv(name, "http://elsewhere/v1" if "URL" in name else KEY)
    monkeypatch.setenv("DOCTOR_BASE_URL", "http://elsewhere/v1")
    monkeypatch.setenv("DOCTOR_MAX_CALLS", "4")
    monkeypatch.setenv("DOCTOR_MODEL", "")
    assert resolved(text) is None
    assert resolved(text, max_calls=2, max_cost=1.0) is None
    assert resolved(text, hook=True) is None


def test_once_a_model_is_named_the_usual_variables_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://server:8000/v1")
    found = asked(model="big")
    assert (found.model, found.base_url, found.api_key) == ("big", "http://server:8000/v1", KEY)
    assert (found.key_from, found.named_by) == ("OPENAI_API_KEY", "--model")
    assert KEY not in repr(found)
    assert asked('base_url = "http://mine/v1"\n', model="big").base_url == "http://mine/v1"


def test_defaults_are_bounded() -> None:
    found = asked('model = "big"\n')
    assert found == replace(ModelSettings("big"), key_from="OPENAI_API_KEY", named_by=os.environ["DOCTOR_CONFIG"])
    assert min(found.max_calls, found.max_tokens, found.max_seconds, found.timeout) > 0


@pytest.mark.parametrize("text", ['model = "x"\n', 'profile = "p"\n[profiles.p]\nmodel = "x"\n', 'profile = "gone"\n'])
def test_offline_wins_over_everything(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_MODEL", "y")
    assert resolved(text, offline=True, model="z", base_url="http://a/v1", max_cost=2.0) is None


def test_a_hook_asks_no_model_that_only_the_file_names(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'model = "x"\nprofile = "p"\n[profiles.p]\nmodel = "small"\nbase_url = "http://p/v1"\n'
    assert asked(text).model == "small"
    assert resolved(text, hook=True) is None
    monkeypatch.setenv("DOCTOR_PROFILE", "p")  # a profile chosen is still a model that the file names
    assert resolved(text, hook=True) is None
    assert asked(text, hook=True, model="p").base_url == "http://p/v1"
    monkeypatch.setenv("DOCTOR_MODEL", "told")
    assert asked(text, hook=True).model == "told"


PROFILES = """
model = "top"
base_url = "http://top/v1"
[profiles.local]
model = "qwen"
base_url = "http://local:8000/v1"
[profiles.qwen]
base_url = "http://other/v1"
"""


def test_a_profiles_name_stands_for_its_model_and_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (asked(PROFILES).model, asked(PROFILES).base_url) == ("top", "http://top/v1")
    found = asked(PROFILES, model="local")
    assert (found.model, found.base_url, found.named_by) == ("qwen", "http://local:8000/v1", "--model")
    assert asked(PROFILES, model="qwen").model == "top"  # the profile of that name has none of its own
    assert asked(PROFILES, model="other").base_url == "http://top/v1"
    monkeypatch.setenv("DOCTOR_PROFILE", "local")
    assert (asked(PROFILES).model, asked(PROFILES).named_by) == ("qwen", "profile local")
    assert (asked(PROFILES, model="other").model, asked(PROFILES, model="other").base_url) == (
        "other", "http://local:8000/v1",
    )  # fmt: skip
    monkeypatch.setenv("DOCTOR_MODEL", "qwen")
    assert asked(PROFILES).base_url == "http://other/v1"


def test_a_profile_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no \[profiles\.gone\].*profiles there: here"):
        resolved('profile = "gone"\n[profiles.here]\n')
    with pytest.raises(UsageError, match="names no model"):
        resolved("[profiles.here]\n", model="here")
    with pytest.raises(UsageError, match="names no model"):
        resolved('model = "here"\n[profiles.here]\ntimeout = 3\n')


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["m1", "m2", "m3"]),
    "base_url": st.sampled_from(["http://a/v1", "https://b:8/v1", "http://[::1]:80/v1"]),
    "max_calls": st.integers(0, 50),
    "max_tokens": st.integers(0, 10**7),
    "max_seconds": st.integers(0, 1000).map(float),
    "max_cost": st.integers(0, 1000).map(lambda n: n / 8),
}
FILED: dict[str, st.SearchStrategy[Any]] = {
    **VALUES,
    "temperature": st.integers(0, 8).map(lambda n: n / 4),
    "timeout": st.integers(1, 600).map(float),
    "window": st.sampled_from([0, 4096, 16384, 131072]),
    "extra_body": st.sampled_from([{"top_k": 1}, {"chat_template_kwargs": {"enable_thinking": False}}]),
}


def level(of: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Any settings of one level, some left out."""
    return st.fixed_dictionaries({}, optional=of)


def toml(keys: dict[str, Any]) -> str:
    """Settings as TOML."""

    def word(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name} = {word(each)}" for name, each in value.items()) + "}"
        return json.dumps(value)

    return "".join(f"{name} = {word(value)}\n" for name, value in keys.items())


@given(flags=level(VALUES), variables=level(FILED), profile=level(FILED), top=level(FILED))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_highest_level_wins(
    flags: dict[str, Any], variables: dict[str, Any], profile: dict[str, Any], top: dict[str, Any]
) -> None:
    prices = "".join(f"[prices.{name}]\nin = 1.5\nout = 2.5\n" for name in ("m1", "m2", "m3"))
    text = f'profile = "p"\n{toml(top)}[profiles.p]\n{toml(profile)}{prices}'
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(f"DOCTOR_{name.upper()}", value if isinstance(value, str) else json.dumps(value))
        if flags.get("base_url") and not any("model" in keys for keys in (flags, variables, profile, top)):
            with pytest.raises(UsageError, match="no model is named"):
                resolved(text, **flags)
            return
        found = resolved(text, **flags)
    laid: dict[str, Any] = {**top, **profile, **variables, **flags}
    if "model" not in laid:
        assert found is None
        return
    assert found is not None
    for name in FILED:
        assert getattr(found, name) == laid.get(name, getattr(ModelSettings(""), name)), name
    assert (found.price_in, found.price_out) == (1.5, 2.5)


def test_a_key_goes_to_no_server_it_was_not_written_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("company-key\n")
    (tmp_path / "key").chmod(0o600)
    text = (
        f'model = "big"\nbase_url = "https://company/v1"\napi_key_file = "{tmp_path}/key"\nheaders = {{X-Team = "a"}}\n'
        '[profiles.local]\nmodel = "small"\nbase_url = "http://localhost:8000/v1"\n'
        '[profiles.same]\nmodel = "other"\n'
    )
    found = asked(text)
    assert (found.api_key, dict(found.headers)) == ("company-key", {"X-Team": "a"})
    assert (asked(text, model="same").api_key, asked(text, model="any").api_key) == ("company-key", "company-key")
    for options in ({"model": "local"}, {"model": "big", "base_url": "http://evil/v1"}):
        found = asked(text, **options)
        assert (found.api_key, dict(found.headers), found.key_from) == ("", {}, "OPENAI_API_KEY")
    monkeypatch.setenv("DOCTOR_BASE_URL", "http://evil/v1")
    assert asked(text).api_key == ""
    monkeypatch.setenv("MINE", "my-key")
    monkeypatch.setenv("DOCTOR_API_KEY_ENV", "MINE")
    assert asked(text).api_key == "my-key"


def test_where_the_key_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("TEAM_KEY", " team-key \n")
    assert (asked('model = "m"\napi_key_env = "TEAM_KEY"\n').api_key) == "team-key"
    none = asked('model = "m"\napi_key_env = ""\n')
    assert (none.api_key, none.key_from) == ("", "")
    beside = Path(os.environ["DOCTOR_CONFIG"]).parent / "k"  # a relative name starts beside the config file
    beside.write_text("file-key")
    beside.chmod(0o640)
    found = asked('model = "m"\napi_key_file = "k"\n')
    assert (found.api_key, found.key_from) == ("file-key", "k")
    monkeypatch.setenv("DOCTOR_API_KEY_ENV", "TEAM_KEY")
    assert asked('model = "m"\napi_key_file = "k"\n').api_key == "team-key"
    monkeypatch.setenv("TEAM_KEY", "two words\nand a line")
    with pytest.raises(UsageError, match="TEAM_KEY") as refused:
        asked('model = "m"\n')
    assert "words" not in str(refused.value)


@pytest.mark.parametrize("fault", ["missing", "open", "fifo", "folder", "empty", "lines", "binary", "huge", "homeless"])
def test_a_key_file_that_will_not_do_is_refused_without_showing_it(tmp_path: Path, fault: str) -> None:
    path = Path("~nobody-of-that-name/key") if fault == "homeless" else tmp_path / "key"
    if fault == "fifo":
        os.mkfifo(path, 0o600)
    elif fault == "folder":
        path.mkdir(0o700)
    elif fault not in ("missing", "homeless"):
        content = {"open": KEY, "empty": "", "lines": f"OPENAI_API_KEY=1\n{KEY}\n", "binary": "\x00\x1b[2J" + KEY}
        path.write_text(content.get(fault, "k" * 9000))
        path.chmod(0o644 if fault == "open" else 0o600)
    with pytest.raises(UsageError) as refused:
        resolved(f'model = "m"\napi_key_file = "{path}"\n')
    assert refused.value.exit_code == 2
    assert str(path) in str(refused.value)
    assert KEY not in str(refused.value)
    assert resolved(f'model = "m"\napi_key_file = "{path}"\n', offline=True) is None


def test_headers_take_secrets_from_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE", "gate-secret")
    found = asked('model = "m"\n[headers]\nX-Api-Key = "$GATE"\nX-Project = "llm"\n')
    assert dict(found.headers) == {"X-Api-Key": "gate-secret", "X-Project": "llm"}
    assert "gate-secret" not in repr(found)
    monkeypatch.delenv("GATE")
    with pytest.raises(UsageError, match=r"X-Api-Key.*GATE is not set"):
        resolved('model = "m"\n[headers]\nX-Api-Key = "$GATE"\n')


def test_a_cost_is_bounded_only_where_a_price_is_known() -> None:
    with pytest.raises(UsageError, match=r'\[prices\."m"\]'):
        resolved('model = "m"\n', max_cost=2.0)
    assert asked('model = "m"\n[prices.m]\nin = 0\nout = 0\n', max_cost=2.0).price_in == 0


BAD_FLAGS = [
    ({"base_url": "localhost:8000"}, "--base-url"), ({"base_url": "ftp://h/v1"}, "http"),
    ({"base_url": "file:///etc/passwd"}, "http"), ({"base_url": "http://"}, "host"),
    ({"base_url": "https://me:hunter2@host/v1"}, "api_key_file"), ({"base_url": "https://host/v1?key=hunter2"}, "after"),
    ({"base_url": "http://host/v1\r\nX: hunter2"}, "control"), ({"base_url": "http://h:99999/"}, "not an address"),
    ({"base_url": "http://[::1/v1"}, "not an address"), ({"base_url": ""}, "http"),
    ({"max_calls": -1}, "--max-calls"), ({"max_tokens": -5}, "--max-tokens"), ({"max_cost": -0.1}, "--max-cost"),
    ({"max_seconds": float("nan")}, "--max-seconds"), ({"max_cost": float("inf")}, "--max-cost"),
    ({"model": " "}, "no model"), ({"model": "a\x1b[2J"}, "no model"), ({"model": "m" * 300}, "no model"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), BAD_FLAGS)
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolved(**{"model": "m", **options})
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_wrong_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:hunter2@host/v1")
    with pytest.raises(UsageError, match="OPENAI_BASE_URL: may hold no user") as refused:
        resolved(model="m")
    assert "hunter2" not in str(refused.value)
    assert resolved() is None  # it bothers nobody where no model is named
    monkeypatch.delenv("OPENAI_BASE_URL")
    for name, value in (("MAX_CALLS", "many"), ("HEADERS", "{"), ("EXTRA_BODY", '{"n": 5}'), ("WINDOW", "12")):
        with monkeypatch.context() as patch, pytest.raises(UsageError, match=f"DOCTOR_{name}"):
            patch.setenv(f"DOCTOR_{name}", value)
            resolved(model="m")


def test_options_that_want_a_model_say_so_where_none_is_named() -> None:
    for option, value in (("required", True), ("base_url", "http://h/v1")):
        with pytest.raises(UsageError, match=r"no model is named.*DOCTOR_MODEL"):
            resolved("", **{option: value})
    with pytest.raises(UsageError, match="exclude"):
        resolved(required=True, offline=True)


def test_a_run_can_only_tighten(tmp_path: Path) -> None:
    mine = ModelSettings("m", max_calls=10, max_tokens=0, max_seconds=60, price_in=1.0, price_out=1.0)
    found, told = tightened(mine, {"max_calls": 20, "max_tokens": 500, "max_seconds": 5, "max_cost": 0.5})
    assert (found.max_calls, found.max_tokens, found.max_seconds, found.max_cost) == (10, 500, 5, 0.5)
    assert not told
    found, told = tightened(replace(mine, price_in=None), {"max_cost": 0.5})
    assert found.max_cost == 0
    assert "no price" in told[0]
    (tmp_path / "doctor.toml").write_text('max_calls = 2\nmodel = "evil"\n')
    found, told = within_the_run(mine, [tmp_path])
    assert found is not None
    assert (found.model, found.max_calls) == ("m", 2)
    assert told == ["doctor.toml in the run may not set model: ignored"]
    assert within_the_run(None, [tmp_path]) == (None, told)
