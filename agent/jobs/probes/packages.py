"""List what is installed: `python -m traindoctor.agent.jobs.probes.packages FOLDER|PID ...`, one package a line.

Reads METADATA files only; no interpreter of the job is started and nothing is imported. A folder may be a virtual
environment, a site-packages folder or an interpreter's path; for a PID the folders that its loaded libraries and its
environment name.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

LIMIT = 5000  # packages
HEADER = 256 << 10  # bytes of METADATA: the description behind the headers does not matter
SITE = re.compile(r"(/\S+?/(?:site|dist)-packages)/")
PREFIXES = ("VIRTUAL_ENV", "CONDA_PREFIX")


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def of_process(pid: str) -> list[Path]:
    """Folders of packages that a process uses."""
    found: list[Path] = []
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        found += [Path(p) for p in dict.fromkeys(SITE.findall(maps))]
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        found += [p for v in variables if v.partition("=")[0] in PREFIXES for p in folders(Path(v.partition("=")[2]))]
    except OSError as e:
        say(unreadable=pid, why=str(e.strerror))
    return found


def folders(path: Path) -> list[Path]:
    """Site-packages of what a user may name."""
    if path.is_file():
        path = path.parent.parent
    if any(path.glob("*.dist-info")):
        return [path]
    return [p for pattern in ("lib/python3*/site-packages", "lib/python3*/dist-packages") for p in path.glob(pattern)]


def headers(text: str) -> dict[str, list[str]]:
    """METADATA's headers, without its description."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        name, colon, value = line.partition(":")
        if colon and name in {"Name", "Version", "Requires-Dist", "Requires-Python"}:
            found.setdefault(name, []).append(value.strip())
    return found


def listed(folder: Path) -> None:
    """Packages of one folder, and remains of interrupted installations (`~umpy`)."""
    python = re.search(r"python(3\.\d+)", str(folder))
    say(folder=str(folder), python=python[1] if python else "")
    for entry in sorted(folder.iterdir())[: 4 * LIMIT]:
        if entry.name.startswith("~"):
            say(remains=entry.name, folder=str(folder))
        metadata = entry / ("METADATA" if entry.name.endswith(".dist-info") else "PKG-INFO")
        if not entry.name.endswith((".dist-info", ".egg-info")) or entry.name.startswith("~"):
            continue
        try:
            with metadata.open("rb") as f:
                read = headers(f.read(HEADER).decode(errors="replace").replace("\r\n", "\n"))
        except OSError:
            say(broken=entry.name, folder=str(folder))
            continue
        if "Name" in read and "Version" in read:
            say(name=read["Name"][0], version=read["Version"][0], folder=str(folder),
                requires=[r for r in read.get("Requires-Dist", []) if "extra" not in r.partition(";")[2]],
                python=read.get("Requires-Python", [""])[0])  # fmt: skip


def main(arguments: list[str]) -> int:
    """Exit code 1 where nothing was found."""
    found: list[Path] = []
    for argument in arguments:
        found += of_process(argument) if argument.isdigit() else folders(Path(argument))
    for folder in dict.fromkeys(f.resolve() for f in found if f.is_dir()):
        listed(folder)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
