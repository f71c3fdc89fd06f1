"""The user's config file: where it is, what it may hold, how it is told, what is never shown."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.config import Config, ModelKeys, config_file, flags, settle
from traindoctor.agent.core.errors import UsageError

Doctor = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "sk-proj-" + "s" * 40


def write(text: str | bytes) -> Path:
    """Make this the user's config file."""
    path = Path(os.environ["DOCTOR_CONFIG"])
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    settle.cache_clear()
    return path


def test_the_older_name_is_read_where_the_newer_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "traindoctor"
    folder.mkdir()
    assert config_file() == folder / "doctor.toml"
    (folder / "config.toml").write_text('allow = "probe"\n')
    assert config_file() == folder / "config.toml"
    assert settle().allow == "probe"
    (folder / "doctor.toml").write_text('allow = "costly"\n')
    settle.cache_clear()
    assert config_file() == folder / "doctor.toml"


WRONG = [
    ('modle = "x"\n', "modle: there is no such setting; meant is perhaps model"),
    ('[profiles.a]\nmodell = "x"\n', "profiles.a.modell: there is no such setting; meant is perhaps model"),
    ('[profiles.a]\nallow = "costly"\n', "profiles.a.allow: there is no such setting"),
    ("[prices.m]\nin = 1\nouts = 2\n", "prices.m."),
    ("[prices.m]\nin = -1\nout = 2\n", "prices.m.in: "),
    ("max_calls = -1\n", "max_calls: "), ("max_calls = true\n", "max_calls: must be a number"),
    ("temperature = 3\n", "temperature: "), ("timeout = 0\n", "timeout: "), ("max_seconds = nan\n", "max_seconds: "),
    ("window = 100\n", "window: must be 0"), ('base_url = "host:8000"\n', "base_url: must begin with http"),
    ('api_key_env = "my key"\n', "api_key_env: this names no variable"),
    ('api_key_file = "a"\napi_key_env = "B"\n', "api_key_file and api_key_env are both set"),
    ("[extra_body]\nmessages = []\n", "extra_body: may not set messages"),
    ('[extra_body]\nstream = "no"\n', "extra_body: stream is true or false"),
    ("[extra_body]\nwhen = 2020-01-01\n", "extra_body: holds what JSON has no word for"),
    ('[headers]\n"X: y" = "z"\n', "headers: "), ('[headers]\nX = "a\\nb"\n', "headers: "),
    ('[headers]\nHost = "evil"\n', "headers: Host is set by the client"),
    ('headers = "{}x"\n', "headers: must be JSON"),
    ("profiles = 3\n", "profiles: "), ("[profiles]\na = 3\n", "profiles.a: "),
    ("x = " + "[" * 5000, "too deep"), ("x = " + "9" * 6000 + "\n", "doctor.toml: "), ("allow == 1\n", "doctor.toml: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_wrong_is_told_with_file_and_setting(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCTOR_CONFIG", str(tmp_path / "doctor.toml"))
    path = write(text)
    with pytest.raises(UsageError) as refused:
        settle()
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


TOKENS = st.sampled_from(
    [*Config.model_fields, "=", "[", "]", "{", "}", '"', ".", "\n", "profiles", "prices", "in", "1", "-1", "nan", "a",
     "true", '"http://h/v1"', '"http://[/"', '"$A"', "\ufeff", "\x00", "2020-01-01"]
)  # fmt: skip


@given(st.one_of(st.lists(TOKENS, max_size=30).map("".join), st.text(max_size=60)), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_file_is_settled_or_refused(text: str, marked: bool) -> None:
    write(("\ufeff" if marked else "") + text.encode("utf-8", "replace").decode())
    with contextlib.suppress(UsageError):
        settle()


@given(st.one_of(st.text(max_size=40), st.text("htps:/@[]?#.0189\\ %\n", max_size=30).map("http://".__add__)))
@settings(max_examples=300, deadline=None)
def test_any_address_is_taken_whole_or_refused(text: str) -> None:
    from urllib.parse import urlsplit

    try:
        address = flags({"base_url": text}).base_url
    except UsageError as e:
        assert "\n" not in str(e)
        return
    parts = urlsplit(address or "")
    assert address == text
    assert parts.scheme in ("http", "https")
    assert parts.hostname
    assert not (parts.username or parts.password or parts.query or parts.fragment)


SECRETS = [
    f'api_key = "{SECRET}"\n', f'[profiles.a]\napi_key = "{SECRET}"\n', f'api_key_env = "{SECRET}"\n',
    f'base_url = "https://me:{SECRET}@host/v1"\n', f'base_url = "https://host/v1?key={SECRET}"\n',
    f'[headers]\nAuthorization = "Bearer {SECRET}"\n', f'[profiles.a.headers]\nx-api-key = "{SECRET}"\n',
    f'[headers]\nX-Key = "$ {SECRET}"\n',
]  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str, doctor: Doctor) -> None:
    write(text)
    done = doctor("config")
    assert (done.returncode, done.stdout) == (2, "")
    assert SECRET not in done.stderr
    assert any(word in done.stderr for word in ("api_key_file", "api_key_env", "variable", "names no", "after ?"))


def test_odd_files_are_refused_and_closed_folders_hold_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", ""):
        monkeypatch.setenv("DOCTOR_CONFIG", str(tmp_path / name))
        settle.cache_clear()
        with pytest.raises(UsageError, match="is not a regular file"):
            settle()
    monkeypatch.setenv("DOCTOR_CONFIG", str(tmp_path / "fifo" / "below"))
    settle.cache_clear()
    assert settle().model is None


def test_the_files_model_is_put_into_no_variable() -> None:
    write('model = "m"\nprofile = "p"\nmax_calls = 2\nchroma_url = "http://index"\n[profiles.p]\nmodel = "n"\n')
    settle()
    assert not {"DOCTOR_MODEL", "DOCTOR_PROFILE", "DOCTOR_MAX_CALLS"} & os.environ.keys()


def examples() -> list[str]:
    """The config files of the documents."""
    page = Path(__file__).resolve().parents[2] / "docs" / "models.md"
    return re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", examples())
def test_the_examples_of_the_documents_hold(text: str) -> None:
    write(text)
    assert settle().profiles


def test_the_documents_have_examples_and_every_setting() -> None:
    assert len(examples()) >= 6
    page = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    assert not [name for name in (*ModelKeys.model_fields, "profile") if f"`{name}`" not in page]


FULL = """
model = "big"
max_calls = 5
[headers]
X-Team = "private-word"
X-Api-Key = "$GATE"
[extra_body]
chat_template_kwargs = {token = "private-too"}
[profiles.local]
model = "small"
base_url = "http://localhost:8000/v1"
[profiles.bare]
"""


def test_doctor_config_lists_the_model_with_origins_and_no_secret(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(FULL)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("GATE", "gate-secret")
    monkeypatch.setenv("DOCTOR_MAX_TOKENS", "1000")
    shown = doctor("config").stdout
    for line in (
        f"model = big  ({path})", f"max_calls = 5  ({path})", "max_tokens = 1000  (DOCTOR_MAX_TOKENS)",
        f"headers = X-Team, X-Api-Key  ({path})", f"extra_body = chat_template_kwargs  ({path})",
        "max_seconds = 300.0  (default)", "key = set, from OPENAI_API_KEY  (OPENAI_API_KEY)",
        "profile local: small at http://localhost:8000/v1", "profile bare: big at the default server",
    ):  # fmt: skip
        assert line in shown.splitlines()
    data = doctor("config", "show", "--json").stdout
    assert {p["name"]: p["model"] for p in json.loads(data)["profiles"]} == {"local": "small", "bare": "big"}
    for secret in (SECRET, "gate-secret", "private-word", "private-too"):
        assert secret not in shown + data
    monkeypatch.setenv("DOCTOR_MODEL", "local")
    shown = doctor("config").stdout
    assert "model = small  (DOCTOR_MODEL)" in shown
    assert "profile = local  (DOCTOR_MODEL)" in shown
    assert "base_url = http://localhost:8000/v1  (profile local)" in shown


def test_doctor_config_says_where_no_model_is_named_and_what_will_not_do(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor("config").stdout.endswith("No model is named: nothing is sent.\n")
    write(f'model = "m"\napi_key_file = "{tmp_path}/none"\n')
    assert "key = unusable: " in doctor("config").stdout
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://me:{SECRET}@host/v1")
    done = doctor("config")
    assert "base_url = unusable: OPENAI_BASE_URL: may hold no user" in done.stdout
    assert SECRET not in done.stdout


def test_every_setting_has_its_variable_in_the_listing(doctor: Doctor) -> None:
    shown = doctor("config").stdout
    for name in (*ModelKeys.model_fields, "profile"):
        assert f"DOCTOR_{name.upper()}\n" in shown
