"""The documents: made pages are current, examples run, links lead somewhere, nothing speaks of this machine."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.report import Report

ROOT = Path(__file__).resolve().parent.parent
PAGES = [p for name in ("*.md", "docs/*.md") for p in sorted(ROOT.glob(name))]
Doctor = Callable[..., subprocess.CompletedProcess[str]]


def made_pages() -> dict[str, Callable[[], str]]:
    """What `make docs` writes."""
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "docs" / "make.py")
    assert spec
    assert spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


@pytest.mark.parametrize("name", sorted(made_pages()))
def test_made_pages_are_current(name: str) -> None:
    assert made_pages()[name]() == (ROOT / "docs" / name).read_text(encoding="utf-8"), "run `make docs`"


def test_a_real_report_obeys_the_published_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from tests.sample import sample

    schema = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    data = json.loads(sample().to_json())
    jsonschema.validate(data, schema)
    assert data["schema"] == "traindoctor.report/1"
    assert set(data["meta"]["tokens"]) == {"in", "out"}
    assert Report.model_validate(data) == sample()


def commands() -> list[str]:
    """Every `doctor ...` line in the shell blocks of the README and of the page of uses."""
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/use.md"))
    blocks = re.findall(r"^```(?:bash|console|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("doctor ")))


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_readme_work(doctor: Doctor, command: str, tmp_path: Path) -> None:
    """Those over the bundled incident are run on a copy of it; of the others, the options must exist."""
    command = command.split("  #")[0]
    words = shlex.split(command.partition(" -- ")[0])[1:]  # what follows is another program's
    if bundled := re.search(r"evals/(demo|preflight)", command):
        shutil.copytree(ROOT / bundled[0], tmp_path / bundled[0])
        done = doctor(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        return
    shown = doctor(*_subcommand(words), "--help").stdout
    for option in (w.split("=")[0] for w in words if w.startswith("--")):
        assert option in shown, f"{command}: no {option}"


def _subcommand(words: list[str]) -> list[str]:
    groups = {"playbook", "index", "sessions", "config"}
    if words[0] in groups and len(words) > 1 and not words[1].startswith("-"):
        return words[:2]
    return words[:1]


def test_the_picture_in_the_readme_is_what_the_command_says(doctor: Doctor) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = text.split("<!-- report -->")[1].split("<!-- /report -->")[0]
    question = re.search(r'doctor ask "([^"]+)"', picture)
    assert question
    shown = doctor("ask", question[1], "--run", "evals/demo/files", cwd=ROOT).stdout.splitlines()
    assert shown[1] in picture
    assert shown[0].split(",")[0] in picture  # the cause and its status; the percentage may move
    titles = {"What happened", "Evidence", "What to do", "Checked"}
    assert titles <= set(shown) & set(picture.splitlines())


def test_the_preflight_in_the_page_of_uses_is_what_the_command_says(doctor: Doctor) -> None:
    text = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
    picture = next(b for b in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if b.startswith("$ doctor preflight"))
    command, *shown = picture.splitlines()
    said = doctor(*shlex.split(command)[2:], cwd=ROOT).stdout

    def plain(text: str) -> list[str]:
        return [re.sub(r"E\d+", "E", line).strip() for line in text.splitlines() if line.strip(". ")]

    assert plain("\n".join(shown)) == plain(said)[: len(plain("\n".join(shown)))]


def test_the_readme_has_commands() -> None:
    assert len(commands()) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_nothing_speaks_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/(?:root|work)/", text)


def test_make_targets_named_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"`make ([a-z]+)`|^make ([a-z]+)$", page.read_text(), re.MULTILINE):
            name = target[0] or target[1]
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"{page.name}: make {name}"


def test_python_of_docs_is_the_one_running() -> None:
    assert sys.version_info >= (3, 11)
