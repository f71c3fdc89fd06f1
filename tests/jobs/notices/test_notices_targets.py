"""Who may name a target, and that none is ever shown with its secret."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.jobs.notices import delivery
from traindoctor.agent.jobs.notices.announce import delivered

from tests.jobs.notices.receivers import until, webhook

Doctor = Callable[..., subprocess.CompletedProcess[str]]
SECRET = "s3cr3tt0k3n"


@pytest.mark.parametrize(("url", "shown"), [
    (f"https://user:{SECRET}@hooks.site.example:8443/{SECRET}?k={SECRET}", "https://hooks.site.example:8443"),
    (f"slack://{SECRET}/B0000/abc", "slack://..."),
    (f"tgram://{SECRET}/1", "tgram://..."),
    (f"mailtos://u:{SECRET}@mail.example?to=a@b.example", "mailtos://mail.example"),
    (f"json://{SECRET}:x@[::1]:80/", "json://[::1]:80"),
    (f"json://a:b@{SECRET}\x1b[31m/", "json://..."),
])  # fmt: skip
def test_only_scheme_and_host_are_shown(url: str, shown: str) -> None:
    assert delivery.shown(url) == shown and SECRET not in delivery.shown(url)


def test_all_that_are_named_hold_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert delivery.settled() == []
    Path(os.environ["DOCTOR_CONFIG"]).write_text('notify = ["json://d/", "json://a/"]\n')
    (tmp_path / "urls").write_text("# ours\njson://c/\n\n")
    monkeypatch.setenv("DOCTOR_NOTIFY", "json://a/  json://b/")
    monkeypatch.setenv("DOCTOR_NOTIFY_FILE", str(tmp_path / "urls"))
    from traindoctor.agent.core.config import settle

    settle.cache_clear()
    assert delivery.settled(["json://x/"]) == ["json://x/", "json://a/", "json://b/", "json://c/", "json://d/"]
    assert os.environ["DOCTOR_NOTIFY"] == "json://a/  json://b/"


@pytest.mark.parametrize("url", [f"{SECRET}", f"slack://{SECRET}", f"json://{SECRET} x"])
def test_what_nothing_can_be_sent_to_is_told_at_once_without_its_secret(url: str) -> None:
    with pytest.raises(UsageError) as told:
        delivery.checked([url])
    assert SECRET not in str(told.value) and str(told.value).startswith("--notify: ")


def test_a_run_names_no_target(tmp_path: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """`triage --write` tells whom the user named, also where one of the names is wrong, and nobody else."""
    (tmp_path / "train.log").write_text("RuntimeError: CUDA error: out of memory\n")
    with webhook() as hook, webhook() as theirs:
        (tmp_path / "doctor.toml").write_text(f'notify = "json://127.0.0.1:{theirs.port}/"\n')
        monkeypatch.setenv("DOCTOR_NOTIFY", f"json://127.0.0.1:{hook.port}/ nonsense")
        done = doctor("triage", tmp_path, "--json", "--write", cwd=tmp_path)
        assert done.returncode == 0
        assert any("may not set notify" in line for line in json.loads(done.stdout)["meta"]["degraded"])
        assert "notices: DOCTOR_NOTIFY: a target of notices is not SCHEME" in done.stderr
        assert until(lambda: hook.heard) and delivered(60) and len(hook.heard) == 1 and not theirs.heard
    done = doctor("triage", tmp_path, "--notify", SECRET)
    assert done.returncode == 2 and SECRET not in done.stderr


def test_none_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from traindoctor.agent.core.config import settle

    monkeypatch.setenv("DOCTOR_NOTIFY", "json://a/")
    assert delivery.whom(["json://x/"]) == (["json://x/", "json://a/"], "")
    assert delivery.whom(["json://x/", "none"]) == ([], "")
    Path(os.environ["DOCTOR_CONFIG"]).write_text('notify = "json://d/"\n')
    settle.cache_clear()
    monkeypatch.setenv("DOCTOR_NOTIFY", "none")
    assert delivery.whom(["json://x/"]) == (["json://x/"], "")
    monkeypatch.setenv("DOCTOR_NOTIFY", "")
    monkeypatch.setenv("DOCTOR_NOTIFY_FILE", "/no/such/file")
    urls, why = delivery.whom(["json://x/"])
    assert urls == ["json://x/", "json://d/"] and "DOCTOR_NOTIFY_FILE" in why


def test_config_lists_and_tries_them(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No target" in doctor("config", "notify").stdout
    with webhook() as hook, webhook(500) as broken:
        monkeypatch.setenv("DOCTOR_NOTIFY", f"json://a:{SECRET}@127.0.0.1:{hook.port}/{SECRET}")
        done = doctor("config", "notify", "--test", "--notify", f"json://127.0.0.1:{broken.port}/{SECRET}")
        assert done.returncode == 1 and f"json://127.0.0.1:{broken.port}  (--notify): HTTP 500" in done.stdout
        assert f"json://127.0.0.1:{hook.port}  (DOCTOR_NOTIFY): sent" in done.stdout
        assert hook.heard[0]["report"] == {"test": True}
    for command in (["config"], ["config", "show", "--json"], ["config", "notify", "--json"]):
        shown = doctor(*command)
        assert shown.returncode == 0, shown.stderr
        assert SECRET not in shown.stdout + shown.stderr and f"json://127.0.0.1:{hook.port}" in shown.stdout
