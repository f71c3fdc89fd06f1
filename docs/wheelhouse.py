"""Everything that doctor needs, as files for a machine without network: `make wheelhouse`.

Into a folder go the wheels of doctor, of all that it imports (with the versions of `constraints.txt` and the CPU build
of torch), of its model's weights, of the recorder for training environments, `SHA256SUMS` and `install.sh`. Nothing is
built but our own wheels: what has no wheel for the named platform is an error. The folder appears whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("agent", "evals", "index", "knowledge", "tui", "pyproject.toml", "README.md", "LICENSE")
UNSHIPPED = shutil.ignore_patterns("__pycache__", "incidents", "threads", "healthy", "*.egg-info", "build", "dist")
_GLIBC = re.compile(r"manylinux_2_(\d+)_(x86_64|aarch64)")
_OLDER = {"x86_64": {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}, "aarch64": {17: "manylinux2014"}}


class Refused(Exception):
    """Why there is no folder, in one line."""


def main(arguments: list[str]) -> int:
    """Make the folder; what stops it is one line."""
    options = _options(arguments)
    try:
        _check(options)
        with tempfile.TemporaryDirectory(prefix="doctor-wheelhouse-") as scratch:
            _make(options, Path(scratch))
    except Refused as e:
        sys.stderr.write(f"wheelhouse: {e}\n")
        return 2
    except subprocess.CalledProcessError as e:
        sys.stderr.write(f"wheelhouse: pip failed with {e.returncode}; what it said stands above\n")
        return 1
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    asked = argparse.ArgumentParser(prog="make wheelhouse", description=__doc__, allow_abbrev=False)
    asked.add_argument("--platform", default="manylinux_2_28_x86_64", help="oldest glibc and machine to install on")
    asked.add_argument("--python-version", default="3.11", help="of the Python to install with")
    asked.add_argument("--extras", default="", help="also: live, ray, or both with a comma")
    asked.add_argument("--torch-index", default="", help="where pip finds the CPU build of torch")
    asked.add_argument("--out", type=Path, default=ROOT / "build" / "wheelhouse")
    return asked.parse_args(arguments)


def platforms(named: str) -> list[str]:
    """A platform and all older ones, which pip does not think of by itself.

    Raises:
        Refused: it is not of the form `manylinux_2_28_x86_64`.
    """
    if (found := _GLIBC.fullmatch(named)) is None:
        raise Refused(f"no such platform: {named} (as in manylinux_2_28_x86_64 or manylinux_2_28_aarch64)")
    newest, machine = int(found[1]), found[2]
    tags = [f"manylinux_2_{n}_{machine}" for n in range(newest, 4, -1)]
    return [*tags, *(f"{tag}_{machine}" for n, tag in _OLDER[machine].items() if n <= newest), f"linux_{machine}"]


def _check(options: argparse.Namespace) -> None:
    """What pip would find out late, or not at all."""
    machine = platforms(options.platform)[0].partition("_2_")[2].partition("_")[2]
    if not re.fullmatch(r"3\.\d{1,2}", options.python_version) or int(options.python_version[2:]) < 11:
        raise Refused(f"doctor needs Python 3.11 or newer, not {options.python_version}")
    if machine != os.uname().machine:
        raise Refused(f"for {machine} this must run on such a machine: which packages are needed depends on it")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if options.python_version != ours:
        raise Refused(
            f"for Python {options.python_version} this must run on one: `make wheelhouse PYTHON_VERSION="
            f"{options.python_version}` takes python{options.python_version} from PATH; this is {ours}"
        )
    if unknown := set(filter(None, options.extras.split(","))) - {"live", "ray"}:
        raise Refused(f"no such extra: {', '.join(sorted(unknown))} (there are live and ray)")
    if options.out.exists() and not (options.out / "SHA256SUMS").is_file() and any(options.out.iterdir()):
        raise Refused(f"{options.out} is there and is no wheelhouse: name another folder")


def _make(options: argparse.Namespace, scratch: Path) -> None:
    began = time.monotonic()
    new = options.out.with_name(f"{options.out.name}.making")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    ours = _built(scratch, new)
    _download(options, ours, new)
    _prove(options, ours, new, scratch)
    version = ours.name.split("-")[1]
    glibc, machine = _GLIBC.fullmatch(options.platform).groups()  # pyright: ignore[reportOptionalMemberAccess]
    text = (ROOT / "docs" / "wheelhouse_install.sh").read_text(encoding="utf-8")
    extras = f"[{options.extras}]" if options.extras else ""
    values = {
        "VERSION": version,
        "PYTHON": options.python_version,
        "GLIBC": glibc,
        "MACHINE": machine,
        "EXTRAS": extras,
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (new / "install.sh").write_text(text, encoding="utf-8")
    (new / "install.sh").chmod(0o755)
    wheels = sorted(new.glob("*.whl"))
    sums = [f"{_sha256(path)}  {path.name}\n" for path in (*wheels, new / "install.sh")]
    (new / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    shutil.rmtree(options.out, ignore_errors=True)
    new.rename(options.out)
    size = sum(path.stat().st_size for path in options.out.iterdir()) / 1e6
    sys.stderr.write(f"{options.out}: {len(wheels)} wheels, {size:.0f} MB, {time.monotonic() - began:.0f} s\n")


def _built(scratch: Path, new: Path) -> Path:
    """Our own wheels, of a copy of the sources: a build leaves files beside what it builds. Returns doctor's."""
    source = scratch / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copy if (ROOT / name).is_file() else lambda a, b: shutil.copytree(a, b, ignore=UNSHIPPED)
        copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "recorder", scratch / "recorder", ignore=UNSHIPPED)
    for folder in (source, scratch / "recorder"):
        _pip("wheel", "--no-deps", "--wheel-dir", str(new), str(folder))
    return next(new.glob("traindoctor-*.whl"))


def _download(options: argparse.Namespace, ours: Path, new: Path) -> None:
    constraints = ROOT / "constraints.txt"
    torch = re.search(r"^torch==(\S+)$", constraints.read_text(encoding="utf-8"), re.MULTILINE)
    assert torch is not None
    index = ["--extra-index-url", options.torch_index] if options.torch_index else []
    earlier = ["--find-links", str(options.out)] if options.out.is_dir() else []
    tags = _tags(options)
    try:
        _pip("download", "--no-deps", "--dest", str(new), *index, *earlier, *tags, f"torch=={torch[1]}+cpu")
    except subprocess.CalledProcessError:
        raise Refused(
            f"pip finds no CPU build of torch {torch[1]}: name its index, which torch's install page has, as "
            "in `make wheelhouse TORCH_INDEX=URL`"
        ) from None
    wanted = f"{ours}[{options.extras}]" if options.extras else str(ours)
    found = ["--find-links", str(new), *earlier, *index, "-c", str(constraints)]
    _pip("download", "--dest", str(new), *found, *tags, wanted, f"torch=={torch[1]}+cpu", "pip")


def _prove(options: argparse.Namespace, ours: Path, new: Path, scratch: Path) -> None:
    """Resolve an installation from the folder alone: what is missing shows here, and not where there is no network."""
    wanted = f"{ours}[{options.extras}]" if options.extras else str(ours)
    target = ["--target", str(scratch / "target")]
    _pip("install", "--dry-run", "--no-index", "--find-links", str(new), *target, *_tags(options), wanted, alone=True)


def _tags(options: argparse.Namespace) -> list[str]:
    """Wheels for that platform and Python only."""
    short = options.python_version.replace(".", "")
    tags = [f"--platform={p}" for p in platforms(options.platform)]
    abis = [f"--abi={abi}" for abi in (f"cp{short}", "abi3", "none")]
    return ["--only-binary=:all:", f"--python-version={options.python_version}", "--implementation=cp", *abis, *tags]


def _pip(*arguments: str, alone: bool = False) -> None:
    """Run pip. `alone`: without the user's settings, which may name further places."""
    kept = {k: v for k, v in os.environ.items() if not alone or not k.startswith("PIP_")}
    kept |= {"PIP_CONFIG_FILE": os.devnull} if alone else {}
    quiet = ["-q", "--disable-pip-version-check", "--no-input"]
    subprocess.run([sys.executable, "-m", "pip", *arguments, *quiet], check=True, env=kept, stdout=subprocess.DEVNULL)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
