"""What no rule can be written for: outputs of one run in the checkout of another, causes planted into sound runs.

planted(sound, faulty)   a sound run with another's code, configs and scripts beside its own
swapped(one, other)      the outputs of `one` in the checkout of `other`

What was brought in explains nothing of what the outputs show, so its cause may not be named with any confidence.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..case import Case

# By its name: what a run is made of; everything else is what it left behind.
_MADE_OF = re.compile(
    r"(?i)\.(?:py|ipynb|sh|sbatch|slurm|ya?ml|toml|cfg|ini|args|json)$|(?:^|/)(?:launch|requirements)\S*$"
)
_LEFT = re.compile(
    r"(?i)(?:^|/)(?:trainer_state|.*results?|metrics|summary|status|record|run|shell|events|.*metadata|model_index|adapter_config"
    r"|tokenizer\w*|special_tokens_map|generation_config|.*\.index|args|progress)\.json$|/\.hydra/|wandb|checkpoint|tb/"
)
_SOUND = "none."


@dataclass(frozen=True, slots=True)
class Transplant:
    """A case that was put together, with the causes that were brought in and do not explain it."""

    case: Case
    planted: tuple[str, ...]


def pairs(cases: Iterable[Case], count: int, seed: int = 0) -> list[tuple[Case, Case]]:
    """That many pairs of incidents whose causes differ: who gives the outputs, and who gives the checkout.

    Half of those that give outputs are sound. Every incident that has something to bring in is used equally often.
    """
    known = list(cases)
    rng = random.Random(seed)
    bringing = [c for c in known if _causes(c) and any(_made_of(c))]
    sound, faulty = ([c for c in known if _is_sound(c) is kind and any(_left(c))] for kind in (True, False))
    found: dict[tuple[str, str], tuple[Case, Case]] = {}
    while bringing and (sound or faulty) and len(found) < min(count, len(bringing) * (len(sound) + len(faulty)) // 2):
        for other in rng.sample(bringing, len(bringing)):
            one = rng.choice(sound if len(found) % 2 == 0 and sound else faulty or sound)
            if not set(_causes(one)) & set(_causes(other)) and len(found) < count:
                found[one.id, other.id] = (one, other)
    return list(found.values())


def planted(one: Case, other: Case, into: Path) -> Transplant:
    """`one` as it is, with what `other` was made of in a folder beside it."""
    shutil.copytree(one.folder, into, symlinks=True, ignore=lambda _, names: {"incident.yaml"} & set(names))
    _bring(other, into / "files" / "other")
    return Transplant(replace(one, folder=into), _causes(other))


def swapped(one: Case, other: Case, into: Path) -> Transplant:
    """What `one` left behind, in the checkout of `other`."""
    for path in _left(one):
        place = into / "files" / path.relative_to(one.files)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    if one.shell.is_file():
        shutil.copy2(one.shell, into / one.shell.name)
    _bring(other, into / "files")
    return Transplant(replace(one, folder=into), _causes(other))


def _bring(other: Case, into: Path) -> None:
    for path in _made_of(other):
        place = into / path.relative_to(other.files)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def _causes(case: Case) -> tuple[str, ...]:
    return tuple(c for c in (*case.expected, *case.acceptable) if not c.startswith(_SOUND))


def _is_sound(case: Case) -> bool:
    return all(c.startswith("none.healthy") for c in case.expected)


def _files(case: Case) -> Iterator[tuple[Path, bool]]:
    for path in sorted(case.files.rglob("*")):
        name = path.relative_to(case.files).as_posix()
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 4_000_000:
            yield path, bool(_MADE_OF.search(name)) and not _LEFT.search(name)


def _made_of(case: Case) -> Iterator[Path]:
    return (path for path, made in _files(case) if made)


def _left(case: Case) -> Iterator[Path]:
    return (path for path, made in _files(case) if not made)
