"""environment: versions and machine with their lines; known conflicts cite both sides; healthy ones stay silent."""

from __future__ import annotations

import re

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE
from traindoctor.agent.reading.settings.compatibility import holds
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.tools.settings.environment_tools import environment

from tests.tools.captured import look


@pytest.mark.parametrize(
    ("files", "conflict"),
    [
        ({"pip-freeze_txt": "torch==2.6.0\ndeepspeed==0.15.4\n"}, "torch-weights-only-deepspeed"),
        ({"pip-freeze_txt": "numpy==2.0.1\ntorch==2.2.2\n"}, "numpy2-torch"),
        ({"pip-freeze_txt": "transformers==5.0.0\npeft==0.17.1\n"}, "hybridcache-peft"),
        ({"lock_txt": "nvidia-nccl-cu13==2.28.9\n", "health_txt": "$ uname -m\naarch64\n"}, "nccl-arm-proxy-slots"),
        ({"env_txt": "torch: 2.6.0+cu124\nGPU 0: NVIDIA GeForce RTX 5090\n"}, "blackwell-torch"),
        ({"env_txt": "torch: 2.9.0+cu130\ndriver 570.10.01\n"}, "driver-cuda13"),
        ({"env_txt": "GPU: Tesla V100-SXM2-32GB\n", "run_sh": "python a.py --bf16\n"}, "bf16-pre-ampere"),
        ({"pip-freeze_txt": "torch==2.5.1\ntorchvision==0.19.0\n"}, "torchvision-pin"),
        ({"pip-freeze_txt": "huggingface_hub==0.27.0\ndiffusers==0.10.2\n"}, "hub-cached-download"),
        ({"pip-freeze_txt": "vllm==0.4.1\ntorch==2.3.0\n"}, "vllm-pin"),
        ({"pip-freeze_txt": "transformers==4.56.1\ntokenizers==0.21.4\n"}, "tokenizers-transformers-22"),
        (
            {"pip-freeze_txt": "transformers==4.51.3\n", "run_sh": "python a.py --evaluation_strategy steps\n"},
            "evaluation-strategy",
        ),
        (
            {"env_txt": "GPU: Tesla T4\n", "run_sh": "python a.py --attn_implementation flash_attention_2\n"},
            "flash-attn-pre-ampere",
        ),
    ],
)
def test_known_conflicts_cite_every_side(tmp_path, files, conflict):
    seen = look(environment, tmp_path, **files)
    found = [e for e in seen.of("env.package_conflict") if str(e.value).startswith(conflict + ":")]
    assert len({(e.file, e.line) for e in found}) == 2
    assert seen.result.outcome == "finding"


@pytest.mark.parametrize(
    "files",
    [
        {"pip-freeze_txt": "torch==2.7.1+cu128\ntorchvision==0.22.1\ntriton==3.3.1\nnumpy==2.1.0\ndeepspeed==0.17.0\n"},
        {
            "pip-freeze_txt": "transformers==4.57.1\npeft==0.17.1\ntokenizers==0.22.0\naccelerate==1.10.0\nhuggingface_hub==0.35.0\n"
        },
        {"env_txt": "torch: 2.7.0+cu128\nGPU 0: NVIDIA GeForce RTX 5090\ndriver 575.57.08\n"},
        {"env_txt": "torch: 2.4.0+cu121\nNVIDIA H100 80GB HBM3\ndriver 535.104.05\nPython 3.11.9\n"},
        {"lock_txt": "nvidia-nccl-cu12==2.21.5\n", "env_txt": "x86_64\n"},
        {"lock_txt": "nvidia-nccl-cu12==2.27.5\n", "env_txt": "aarch64\n"},
        {"env_txt": "torch: 2.5.1+cu124\nGPU 0: NVIDIA RTX 5000 Ada Generation\ndriver 550.54.15\n"},
        {
            "pip-freeze_txt": "torch==2.7.0\ndeepspeed==0.16.2\npydantic==2.10.6\nflash_attn==2.7.4\n",
            "env_txt": "Tesla T4\n",
        },
        {"pip-freeze_txt": "torch==2.1.0\nxformers==0.0.22.post7\n"},
        {"pip-freeze_txt": "datasets==4.0.0\n", "run_sh": "python a.py --trust_remote_code True\n"},
    ],
)
def test_what_goes_together_is_clean(tmp_path, files):
    seen = look(environment, tmp_path, **files)
    assert seen.values("env.package_conflict") == []
    assert seen.values("env.version_mixed") == []
    assert seen.result.outcome == "clean"


def test_two_versions_of_one_package(tmp_path):
    seen = look(
        environment, tmp_path, **{"a_log": "NCCL version 2.19.3+cuda12.3\n", "b_log": "NCCL version 2.21.5+cuda12.4\n"}
    )
    assert {e.file for e in seen.of("env.version_mixed")} == {"a.log", "b.log"}


def test_trials_in_a_table_are_not_mixed(tmp_path):
    table = "lock,ok\nnvidia-nccl-cu12==2.19.3,0\nnvidia-nccl-cu12==2.21.5,1\n"
    seen = look(environment, tmp_path, trials_csv=table)
    assert seen.values("env.version_mixed") == []
    assert seen.values("env.version.nccl") == ["2.19.3", "2.21.5"]


def test_nothing_to_tell(tmp_path):
    assert look(environment, tmp_path, train_log="step 1 loss 2.5\n").result.outcome == "not_applicable"


def test_the_facts_are_sound():
    data = yaml.safe_load((KNOWLEDGE / "compatibility.yaml").read_text())
    ids = [f["id"] for f in data["conflicts"]]
    assert len(ids) == len(set(ids)) >= 40
    for fact in data["conflicts"]:
        assert fact["says"] and fact["fix"], fact["id"]
        assert all(c == "x" or re.fullmatch(r"(?:(?:>=|<=|==|<|>)[\d.]+,?)+", c) for c in fact["when"].values()), fact[
            "id"
        ]
        assert len(fact["when"]) + sum(k in fact for k in ("gpu", "arch", "os", "compute_capability", "settings")) >= 1
        names = fact.get("settings", {})
        assert all(n in settings_map().canonical or n.startswith("other.") for n in names), fact["id"]
        for key in ("gpu", "arch", "os", "compute_capability"):
            re.compile(fact.get(key, ""))
    assert holds("2.6.1", ">=2.6")
