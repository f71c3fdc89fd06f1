"""The state that a checkpoint file holds, told by its bytes. Structure only: no tensor is read here."""

from __future__ import annotations

from ...errors import ParseError
from ...workspace import Workspace
from ..files import RunFile
from .archive import has_directory, read_members
from .arrays import MAGIC, is_npz, read_npy, read_npz
from .parts import Damaged, Problem, State
from .pickled import Pickle
from .placed import Placing
from .safetensors_header import is_safetensors, read_safetensors
from .source import Window, opened
from .torch_files import is_torch_legacy, note_globals, read_torch_legacy, read_torch_zip
from .torch_tar import is_torch_tar, read_torch_tar

_TORCH_NAMES = (".pt", ".pth", ".bin", ".ckpt", ".distcp")
_PICKLE_NAMES = (".pkl", ".pickle", ".metadata")


def state_of(ws: Workspace, file: RunFile) -> State:
    """What a file holds, whatever its format; bad input becomes problems and `readable=False`, never an error."""
    return ws.memo(("checkpoint state", file), lambda: _state(file))


def _state(file: RunFile) -> State:
    state = State(file, "unknown")
    try:
        with opened(file) as window:
            _read(window, state)
    except Damaged as e:
        state.problems.append(e.problem)
        state.readable = False
    except ParseError as e:
        state.problems.append(Problem("unreadable", str(e)))
        state.readable = False
    return state


def _read(window: Window, state: State) -> None:
    name = state.file.path.name.lower()
    head = window.read(0, min(window.size, 512))
    if not window.size:
        raise Damaged("empty", "the file has no bytes")
    if name.endswith(".safetensors") or is_safetensors(head):
        _refuse_zeros(window, head)
        read_safetensors(window, state)
    elif head[:4] == b"PK\x03\x04" or (name.endswith(_TORCH_NAMES) and has_directory(window)):
        _read_zip(window, state)
    elif head.startswith(MAGIC):
        read_npy(window, state)
    elif is_torch_legacy(window):
        read_torch_legacy(window, state)
    elif is_torch_tar(window):
        read_torch_tar(window, state)
    elif head[:1] == b"\x80" or name.endswith(_PICKLE_NAMES):
        _refuse_zeros(window, head)
        _read_pickle(window, state)
    else:
        _refuse_zeros(window, head)
        raise Damaged("unknown_format", f"starts with {head[:8].hex(' ')}, which no checkpoint format does")


def _refuse_zeros(window: Window, head: bytes) -> None:
    """A file of the right length with nothing in it is what a crashed node leaves behind."""
    if not head.strip(b"\0"):
        middle = window.read(window.size // 2, min(512, window.size - window.size // 2))
        if not middle.strip(b"\0"):
            raise Damaged("empty", f"{window.size} bytes that are zero at the start and in the middle: never written")


def _read_zip(window: Window, state: State) -> None:
    state.format = "torch_zip"
    if state.file.path.name.lower().endswith(".npz"):
        state.format = "npz"
    members = read_members(window, state, packed=state.format == "npz")
    if is_npz(members):
        read_npz(window, state, members)
    else:
        read_torch_zip(window, state, members)


def _read_pickle(window: Window, state: State) -> None:
    state.format = "pickle"
    pickle = Pickle(window)
    try:
        value = pickle.read()
    finally:
        note_globals(pickle, state)
    if pickle.storages:
        text = f"a pickle that needs {len(pickle.storages)} storages, which are not in the file"
        state.problems.append(Problem("missing_member", text))
    state.tree = Placing(state, lambda _: None).tree(value)
    if pickle.end < window.size:
        state.problems.append(Problem("hole", f"{window.size - pickle.end} bytes after the end of the pickle"))
        state.readable = False
