"""What the published wheels of torch hold (`compatibility.yaml`), against the GPU and the libraries beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .versions import Environment, Fact, Version, release

_BUILD = re.compile(r"\+cu(\d{2})(\d)\b")
_PUBLISHED = re.compile(r"\d+\.\d+\.\d+")

Said = tuple[str, str, str, list[Version | Fact]]  # id, what is wrong, what to do, where it stands


def torch_conflicts(environment: Environment, wheels: dict[str, Any], gpus: list[list[Any]]) -> Iterator[Said]:
    """GPUs without kernels in the wheel, and libraries that are not those the wheel was linked against."""
    torches = [v for v in environment.of("torch") if len(release(v.version)) > 1]
    if len({release(v.version)[:2] for v in torches}) != 1:
        return
    torch = torches[0]
    wheel = wheels.get(".".join(map(str, release(torch.version)[:2])))
    if wheel is None:
        return
    yield from _kernels(environment, torches, wheel, gpus)
    beside = [v for v in environment.versions if v.file.name == torch.file.name]
    for package in ("nccl", "cudnn", "triton"):
        have = next((v for v in beside if v.package == package), None)
        if have and package in wheel and (wrong := _unfit(package, have.version, wheel[package])):
            says = f"torch {torch.version} {wrong} {package} {wheel[package]}, beside it is {have.version}"
            yield f"torch-{package}", says, f"the {package} that torch's own requirements name", [have, torch]


def _kernels(environment: Environment, torches: list[Version], wheel: dict, gpus: list[list[Any]]) -> Iterator[Said]:
    build, torch = _build(environment, torches, wheel)
    reach = wheel["cuda"].get(build)
    if reach is None:
        return
    lowest, highest = (tuple(map(int, x.rstrip("+").split("."))) for x in reach.split("-"))
    for fact in environment.facts:
        if fact.key != "gpu" or (capability := _capability(str(fact.value), gpus)) is None:
            continue
        # A cubin runs on later minor versions of its major one; a `+` says that PTX for newer ones is inside.
        if capability < lowest or (capability[0] > highest[0] and not reach.endswith("+")):
            says = f"the wheel of torch {torch.version} for CUDA {build} holds kernels for compute capability {reach}; "
            says += f"{fact.value} has {capability[0]}.{capability[1]}"
            fits = [b for b, r in wheel["cuda"].items() if _covers(r, capability)]
            fix = f"the build of this torch for CUDA {' or '.join(fits)}" if fits else "another release of torch"
            yield "torch-wheel-kernels", says, fix, [torch, fact]
            return


def _covers(reach: str, capability: tuple[int, int]) -> bool:
    lowest, highest = (tuple(map(int, x.rstrip("+").split("."))) for x in reach.split("-"))
    return capability >= lowest and (capability[0] <= highest[0] or reach.endswith("+"))


def _build(environment: Environment, torches: list[Version], wheel: dict[str, Any]) -> tuple[str, Version]:
    """The CUDA version of the wheel: from its local version; a plain release on x86-64 is the one of PyPI."""
    for v in torches:
        if m := _BUILD.search(v.version):
            return f"{m[1]}.{m[2]}", v
    plain = _PUBLISHED.fullmatch(torches[0].version) and not environment.of("cuda")
    elsewhere = any(f.key == "arch" and str(f.value) in ("aarch64", "arm64") for f in environment.facts)
    return (wheel["default"] if plain and not elsewhere else ""), torches[0]


def _capability(gpu: str, gpus: list[list[Any]]) -> tuple[int, int] | None:
    for pattern, capability in gpus:
        if re.search(pattern, gpu):
            major, _, minor = str(capability).partition(".")
            return int(major), int(minor)
    return None


def _unfit(package: str, have: str, want: str) -> str:
    """How a library differs from the one the wheel names, if in a way that breaks; empty otherwise."""
    here, there = release(have), release(want)
    if package == "nccl":  # newer ones are put in on purpose, and keep the old symbols
        return "calls symbols of" if here < there else ""
    if package == "cudnn":
        return "is linked against" if here[0] != there[0] else ""
    return "requires" if here[:2] != there[:2] else ""
