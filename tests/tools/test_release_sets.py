"""The facts about versions: every one fires inside its ranges and not outside; real sets of versions raise none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE
from traindoctor.agent.reading.settings.compatibility import holds
from traindoctor.agent.tools.settings.environment_tools import environment

from tests.tools.captured import look

FACTS = yaml.safe_load((KNOWLEDGE / "compatibility.yaml").read_text(encoding="utf-8"))
SETS = yaml.safe_load((Path(__file__).parent / "release_sets.yaml").read_text(encoding="utf-8"))
ROOT = Path(__file__).resolve().parent.parent.parent
BARE = [f for f in FACTS["conflicts"] if set(f) == {"id", "when", "says", "fix", "sources"}]
BESIDES = {"python", "driver", "cuda"}  # said by the machine, not by a list of packages
ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d+")
RELEASE = re.compile(r"[\w'-]+(?: [a-z]+)* \d[\w.]*.*, .+")
PAGE = re.compile(r"(?:NVIDIA [\w ]+|[\w-]+, what's new [\d.]+|[\w.-]+/[\w.-]+, README).*")
KEYS = {"id", "when", "cuda_build", "gpu", "arch", "os", "compute_capability", "settings", "says", "fix", "sources"}


def told(tmp_path: Path, **files: str) -> list[str]:
    return [str(v).split(":")[0] for v in look(environment, tmp_path, **files).values("env.package_conflict")]


def near(condition: str) -> list[str]:
    """Versions at and around the bounds of a condition."""
    if condition == "x":
        return ["1.0"]
    found = []
    for bound in re.findall(r"[\d.]+", condition):
        parts = [*map(int, bound.split(".")), 0][: max(2, bound.count(".") + 1)]
        found.append(".".join(map(str, parts)))
        found.append(".".join(map(str, [*parts[:-1], parts[-1] + 1])))
        last = max((i for i, n in enumerate(parts) if n), default=0)
        found.append(".".join(map(str, [*parts[:last], max(parts[last] - 1, 0), 99])))
    return found


@pytest.mark.parametrize("fact", BARE, ids=lambda f: f["id"])
def test_every_fact_fires_inside_its_ranges_only(tmp_path: Path, fact: dict) -> None:
    inside = {p: next(v for v in near(c) if holds(v, c)) for p, c in fact["when"].items()}
    cases = [(inside, True)]
    for package, condition in fact["when"].items():
        outside = next((v for v in near(condition) if not holds(v, condition)), None)
        if outside:
            cases.append(({**inside, package: outside}, False))
    if len(fact["when"]) > 1:
        cases.append((dict(list(inside.items())[:1]), False))
    for i, (versions, fires) in enumerate(cases):
        (folder := tmp_path / str(i)).mkdir()
        freeze = "".join(f"{p}=={v}\n" for p, v in versions.items() if p not in BESIDES)
        machine = "".join(f"{p.title() if p == 'python' else p} {v}\n" for p, v in versions.items() if p in BESIDES)
        found = told(folder, **{"pip-freeze_txt": freeze, **({"env_txt": machine} if machine else {})})
        assert (fact["id"] in found) is fires, (fact["id"], versions)


@pytest.mark.parametrize("known", SETS, ids=lambda s: s["of"].split()[0])
def test_sets_that_a_resolver_chose_raise_none(tmp_path: Path, known: dict) -> None:
    assert told(tmp_path, **{"pip-freeze_txt": known["packages"].replace(" ", "\n") + "\n"}) == []


def test_our_own_constraints_raise_none(tmp_path: Path) -> None:
    assert told(tmp_path, **{"pip-freeze_txt": (ROOT / "constraints.txt").read_text(encoding="utf-8")}) == []


WHEEL = "torch-wheel-kernels"


@pytest.mark.parametrize(
    ("torch", "gpu", "conflict"),
    [
        ("2.6.0", "NVIDIA GeForce RTX 5090", WHEEL),
        ("2.7.1+cu126", "NVIDIA B200", WHEEL),
        ("2.7.1+cu128", "NVIDIA B200", None),
        ("2.7.1+cu126", "NVIDIA GB300", WHEEL),
        ("2.7.1+cu128", "Tesla V100-SXM2-32GB", WHEEL),
        ("2.7.1+cu126", "Tesla V100-SXM2-32GB", None),
        ("2.8.0", "Tesla V100-SXM2-32GB", None),
        ("2.8.0+cu128", "NVIDIA GeForce GTX 1080 Ti", WHEEL),
        ("2.8.0+cu126", "NVIDIA GeForce GTX 1080 Ti", None),
        ("2.11.0", "Tesla V100-SXM2-32GB", WHEEL),
        ("2.15.0", "Tesla T4", None),
        ("2.4.0+cu121", "NVIDIA H100 80GB HBM3", None),
        ("2.5.1+cu124", "NVIDIA L40S", None),
        ("2.9.0", "NVIDIA GB10", None),
        ("2.9.0+git1234567", "NVIDIA GeForce GTX 1080 Ti", None),
        ("2.0.1+cu117", "NVIDIA A100-SXM4-80GB", None),
        ("2.3.0", "Tesla K80", WHEEL),
    ],
)
def test_a_gpu_needs_kernels_in_the_wheel(tmp_path: Path, torch: str, gpu: str, conflict: str | None) -> None:
    found = told(tmp_path, env_txt=f"torch: {torch}\nGPU 0: {gpu}\n")
    assert (WHEEL in found) is (conflict is not None), found


@pytest.mark.parametrize(
    ("freeze", "conflict"),
    [
        ("torch==2.8.0\nnvidia-nccl-cu12==2.26.2\n", "torch-nccl"),
        ("torch==2.8.0\nnvidia-nccl-cu12==2.28.9\n", None),
        ("torch==2.4.0\nnvidia-cudnn-cu12==8.9.2.26\n", "torch-cudnn"),
        ("torch==2.7.1\ntriton==3.2.0\n", "torch-triton"),
        ("torch==2.7.0\ntriton==3.3.0\n", None),
    ],
)
def test_libraries_beside_torch(tmp_path: Path, freeze: str, conflict: str | None) -> None:
    assert set(told(tmp_path, **{"pip-freeze_txt": freeze})) == ({conflict} if conflict else set())


def test_the_facts_are_well_formed() -> None:
    ids = [f["id"] for f in FACTS["conflicts"]]
    assert len(ids) == len(set(ids)) >= 90
    for fact in FACTS["conflicts"]:
        assert set(fact) <= KEYS, fact["id"]
        assert {"id", "says", "fix", "sources"} <= set(fact) and fact["sources"], fact["id"]
        assert set("".join(fact["id"].split("-"))) <= set("abcdefghijklmnopqrstuvwxyz0123456789"), fact["id"]
        for source in fact["sources"]:
            assert any(form.fullmatch(source) for form in (ISSUE, RELEASE, PAGE)), (fact["id"], source)
        assert all(re.fullmatch(r"[a-z0-9_]+", package) for package in fact.get("when", {})), fact["id"]


def test_the_tables_are_well_formed() -> None:
    version, short = re.compile(r"\d+(?:\.\d+){0,2}"), re.compile(r"\d+\.\d+")
    for package, table in FACTS["pins"].items():
        for mine, torch in table.items():
            assert version.fullmatch(mine) and short.fullmatch(torch), (package, mine)
    assert len(FACTS["torch"]) >= 15
    for release, wheel in FACTS["torch"].items():
        assert short.fullmatch(release) and wheel["default"] in wheel["cuda"], release
        assert all(version.fullmatch(wheel[p]) for p in ("nccl", "cudnn", "triton")), release
        for build, reach in wheel["cuda"].items():
            assert short.fullmatch(build), (release, build)
            lowest, highest = re.fullmatch(r"(\d+\.\d)-(\d+\.\d)\+?", reach).groups()
            assert float(lowest) < float(highest), (release, build)
    for pattern, capability in FACTS["gpus"]:
        assert re.compile(pattern) and short.fullmatch(capability), pattern
