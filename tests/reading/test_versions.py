"""Versions out of lists, lock files, banners, paths and tables; sentences and metrics are none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.compatibility import holds
from traindoctor.agent.reading.settings.versions import _facts, _versions, package_name, read_environment, release


def told(tmp_path: Path, name: str, text: str) -> dict[str, tuple[str, int]]:
    (tmp_path / name).write_text(text)
    reading = read_environment(Workspace([tmp_path]))
    return {v.package: (v.version, v.line.number) for v in reversed(reading.versions)}


@pytest.mark.parametrize(
    ("line", "package", "version"),
    [
        ("nvidia-nccl-cu13==2.28.9", "nccl", "2.28.9"),
        ("torch==2.7.0+cu128", "torch", "2.7.0+cu128"),
        ("vllm==0.29.0.dev211+gc3b4844", "vllm", "0.29.0.dev211+gc3b4844"),
        ("minrepro,2,128,nvidia-nccl-cu13==2.30.7,,1,0", "nccl", "2.30.7"),
        ("node:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2", "nccl", "2.26.2"),
        ("torch 2.7.0+cu128  cuda runtime 12.8  nccl (2, 26, 2)", "nccl", "2.26.2"),
        ("INFO 09-20 14:02:11 [api_server.py:1930] vLLM API server version 0.11.0", "vllm", "0.11.0"),
        ("| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |", "driver", "550.54.15"),
        ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build", "driver", "570.158.01"),
        ("PyTorch version: 2.3.0+cu121", "torch", "2.3.0+cu121"),
        ("CUDA used to build PyTorch: 12.1", "cuda", "12.1"),
        ("Cuda compilation tools, release 11.8, V11.8.89", "cuda_toolkit", "11.8"),
        ("* frame #0: 0x1 libarrow.1601.dylib`malloc_conf_init_helper + 302", "pyarrow", "16.1"),
        ("deepspeed info ................... 0.12.6, unknown, unknown", "deepspeed", "0.12.6"),
    ],
)
def test_lines_that_tell_versions(line, package, version):
    assert (package, version) in list(_versions(line, False))


@pytest.mark.parametrize(
    "line",
    [
        "In PyTorch 2.6, we changed the default value of the `weights_only` argument",
        "{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 1e-05}",
        "step 12 loss 2.4 lr 1.0",
        "[Rank 0] step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.95)]",
        "cuda 0.0 memory 12.3 GB",
    ],
)
def test_lines_that_tell_none(line):
    assert [p for p, _v in _versions(line, False) if p != "cuda"] == []


def test_lists_of_all_kinds(tmp_path):
    got = told(tmp_path, "pip-list.txt", "Package Version\n------- -------\nflash-attn   2.5.8\ntorch  2.3.0\n")
    assert got["flash_attn"] == ("2.5.8", 3)
    assert got["torch"] == ("2.3.0", 4)


def test_transformers_env_and_lock_files(tmp_path):
    text = "- `transformers` version: 4.38.1\n- PyTorch version (GPU?): 2.1.0 (True)\n- Python version: 3.10.12\n"
    got = told(tmp_path, "env.txt", text)
    assert (got["transformers"], got["torch"], got["python"]) == (("4.38.1", 1), ("2.1.0", 2), ("3.10.12", 3))
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "numpy"\nversion = "2.0.1"\n')
    reading = read_environment(Workspace([tmp_path]))
    assert [(v.version, v.line.number) for v in reading.of("numpy")] == [("2.0.1", 3)]


def test_packages_of_another_language_scores_and_what_a_project_asks_for_are_not_installed(tmp_path):
    lock = '[[package]]\nname = "rayon"\nversion = "1.10.0"\n\n[[package]]\nname = "half"\nversion = "2.6.0"\n'
    assert not told(tmp_path, "Cargo.lock", lock)
    assert not told(tmp_path, "compare.txt", "plate 7: 24 compounds\nrmse 1.227\nr2   0.170\n")
    assert "gcc" not in told(tmp_path, "info.json", '{"python_version": "3.11.2 (main) [GCC 12.2.0]"}\n')
    (tmp_path / "train.py").write_text('for i in range(9):\n    print(f"iteration {i} of the fit, loss {i / 7:.4f}")\n')
    (tmp_path / "train.log").write_text("".join(f"iteration {i} of the fit, loss {i / 7:.4f}\n" for i in range(9)))
    assert "numpy" not in told(tmp_path, "requirements.txt", "torch==1.4.0\nnumpy==1.17.4\n")
    assert told(tmp_path, "pip-freeze.txt", "torch==2.6.0\nnumpy==2.1.0\n")["numpy"] == ("2.1.0", 2)


def test_python_from_a_traceback(tmp_path):
    got = told(tmp_path, "train.log", '  File "/opt/conda/lib/python3.10/site-packages/x.py", line 1, in f\n')
    assert got["python"] == ("3.10", 1)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        (
            "GPU 0: NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "gpu",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        ),
        ("device: NVIDIA H100 80GB HBM3", "gpu", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA GB200, 0, 0, No, No, Not Active", "gpu", "NVIDIA GB200"),
        ("GPU type: Tesla V100-SXM2-32GB", "gpu", "Tesla V100-SXM2-32GB"),
        ("aarch64", "arch", "aarch64"),
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "compute_capability", "sm_121a"),
        ("Ubuntu 24.04.4 LTS", "os", "Ubuntu 24.04.4"),
        ("export LD_LIBRARY_PATH=/usr/local/cuda-11.8/lib64:$X", "library_path", "/usr/local/cuda-11.8/lib64:$X"),
        ('LD_PRELOAD="/opt/conda/lib/libstdc++.so.6"', "library_path", "/opt/conda/lib/libstdc++.so.6"),
    ],
)
def test_machine_facts(line, key, value):
    assert (key, value) in list(_facts(line, False))


def test_names_and_numbers():
    assert package_name("Flash-Attn") == "flash_attn"
    assert package_name("pytorch-triton") == "triton"
    assert release("2.10.0.dev20251024+cu130") == (2, 10, 0)
    assert holds("2.28.9", ">=2.19,<2.29.3")
    assert not holds("2.29.3", "<2.29.3")
    assert holds("16.1", "==16.1")
    assert holds("16.1.0", "==16.1")
    assert not holds("16.10", "==16.1")
    assert holds("2.6", "<2.6.1")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab1.=- :()+[]'\"`v/_,x*"), max_size=300))
def test_any_line_is_read_fast(line):
    began = time.process_time()
    list(_versions(line, True))
    list(_facts(line, True))
    assert time.process_time() - began < 1


def test_long_adversarial_lines_are_read_fast():
    for unit in ("a-", "1.", "a ", "torch ", "sm_", "a==", "(", "version "):
        began = time.process_time()
        list(_versions((unit * 2000)[:2000], True))
        list(_facts((unit * 2000)[:2000], True))
        assert time.process_time() - began < 2
