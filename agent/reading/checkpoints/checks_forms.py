"""What a saved file is by its first bytes, where its name says another; keys that a wrapper's name precedes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import ParseError
from ..files import open_regular
from .checks import Flaw
from .layouts import Checkpoint
from .state import state_of

if TYPE_CHECKING:
    from ...workspace import Workspace

_HEADER_LIMIT = 100 << 20  # bytes of a header that safetensors accepts
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pth.tar", ".pkl")
_MARKS = ((b"GGUF", "a GGUF file"), (b"\x93NUMPY", "a NumPy array"), (b"\x89HDF", "an HDF5 file"), (b"PAR1", "Parquet"))
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_WRAPPED = re.compile(r"(?:^|\.)(_orig_mod\.|module\.|_fsdp_wrapped_module\.)")
_READ = 64 << 20  # bytes of a file whose keys are compared
_COMPARED = 6  # saves whose keys are compared
_FEWEST = 3  # keys, below which a common prefix says nothing


def form_flaws(checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Files of tensors in another format than their names say: a loader goes by the name."""
    for file in checkpoint.tensor_files:
        try:
            with open_regular(file.path) as raw:
                found = _other_form(file.path.name, raw.read(9))
        except (ParseError, OSError):
            continue
        if found:
            text = f"{file.path.name} is {found} by its first bytes, whatever its name says"
            yield Flaw("checkpoint.other_format", text, found, file, weight="note")


def _other_form(name: str, head: bytes) -> str:
    """The format that the first bytes tell where the name tells another; empty where both agree or none is known."""
    if name.endswith(".safetensors"):
        return "a torch file" if head.startswith(_ZIP) or head[:2] in (b"\x80\x02", b"\x80\x04") else ""
    if not name.endswith(_PICKLES):
        return ""
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length <= _HEADER_LIMIT:
        return "safetensors"
    return next((said for mark, said in _MARKS if head.startswith(mark)), "")


def wrapped_flaws(ws: Workspace, held: list[Checkpoint]) -> Iterator[tuple[Checkpoint, Flaw]]:
    """Of two saves with the same keys, one has a wrapper's name before each: loaded without `strict`, none fits."""
    known = [(c, keys) for c in held[-_COMPARED:] if (keys := _keys(ws, c))]
    for one, keys in known:
        prefix = _prefix(keys)
        for other, others in known if prefix else ():
            if other is not one and {k.replace(prefix, "", 1) for k in keys} == others:
                text = f"all {len(keys)} keys hold {prefix!r}, those of {other.name} are the same without it"
                yield one, Flaw("checkpoint.wrapped_keys", text, prefix, weight="note")
                break


def _keys(ws: Workspace, checkpoint: Checkpoint) -> set[str]:
    """Names of the tensors in a save that is one small file."""
    files = checkpoint.files.get("model", ())
    if len(files) != 1 or files[0].size > _READ:
        return set()
    try:
        return set(state_of(ws, files[0]).tensors)
    except (ParseError, OSError):
        return set()


def _prefix(keys: set[str]) -> str:
    """The wrapper's name that stands in every key, or nothing."""
    found = {m[1] if (m := _WRAPPED.search(k)) else "" for k in keys}
    return found.pop() if len(found) == 1 and len(keys) >= _FEWEST else ""
