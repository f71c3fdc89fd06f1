"""The query's vector through onnxruntime: 0.2 s from a cold start, against 4 s through torch."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .deadline import Stopped, Work
from .model import ModelUnusable, Progress, embed_documents, model_folder
from .transformer import write_encoder

if TYPE_CHECKING:
    import numpy as np

VERSION = "1"
TOKENS = 256  # the sentence model was trained with this length
AGREEMENT = 0.999
EXPORT_SECONDS = 120.0
PROBES = [
    "Loss became NaN after 4000 steps",
    "NCCL watchdog timeout: one rank died and the others wait for it",
    "How do I keep the optimizer state when I resume from a checkpoint of another world size?",
    "oom",
]


def encoder_folder(cache: Path, weights: str) -> Path:
    """Where the exported encoder of these weights is kept."""
    return cache / "encoder" / f"{weights[:16]}-{VERSION}"


def export(cache: Path, weights: str, progress: Progress) -> float:
    """Write the query encoder into the cache, unless it is there; return how well it agrees.

    The agreement is the smallest cosine between both models' vectors of a few texts.

    Raises:
        ModelUnusable: the model cannot be exported, or the two disagree.
    """
    target = encoder_folder(cache, weights)
    try:
        return float(json.loads((target / "agreement.json").read_text())["cosine"])
    except (OSError, ValueError, KeyError, TypeError):
        shutil.rmtree(target, ignore_errors=True)
    progress("exporting the query encoder", 0, 1)
    source = model_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="building-", dir=target.parent))
    try:
        write_encoder(source, work / "encoder.onnx")
        shutil.copyfile(source / "tokenizer.json", work / "tokenizer.json")
        cosine = Work(_agreement, work, source).result(EXPORT_SECONDS)
        (work / "agreement.json").write_text(json.dumps({"cosine": cosine}))
        os.rename(work, target)  # noqa: PTH104
    except (ImportError, OSError, ValueError, KeyError, Stopped) as e:
        raise ModelUnusable(f"the query encoder cannot be exported: {type(e).__name__}: {e}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress("exporting the query encoder", 1, 1)
    return cosine


def _agreement(work: Path, source: Path) -> float:
    import numpy as np

    expected = embed_documents(PROBES, source, lambda *_: None)
    found = np.stack([encode(text, work) for text in PROBES])
    cosine = float((expected * found).sum(axis=1).min())
    if not cosine > AGREEMENT:
        raise ModelUnusable(f"query and document vectors disagree (cosine {cosine:.4f})")
    return cosine


@lru_cache(maxsize=2)
def _session(folder: Path):
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # 10 ms of work
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "encoder.onnx"), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKENS)
    return session, tokenizer


def encode(text: str, folder: Path) -> np.ndarray:
    """Unit vector of a text, float32 (width,). A damaged encoder raises whatever its libraries raise."""
    import numpy as np

    session, tokenizer = _session(folder)
    encoding = tokenizer.encode(text)
    tokens = {"input_ids": np.array([encoding.ids]), "attention_mask": np.array([encoding.attention_mask])}
    return np.asarray(session.run(["embedding"], tokens)[0])[0]


def discard(folder: Path) -> None:
    """Drop a damaged encoder, so that the next build exports it again."""
    shutil.rmtree(folder, ignore_errors=True)
    _session.cache_clear()
