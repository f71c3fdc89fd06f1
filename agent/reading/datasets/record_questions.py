"""What is wrong with a sample of records, beyond what `samples` asks: one function a question."""

from __future__ import annotations

import codecs
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.errors import ParseError
from ..run.files import Line, RunFile, open_regular
from ..run.records import MEDIA, Record
from ..run.records import tokens as estimate
from ..settings.settings import read_settings
from . import samples
from .columnar import HEAD, TAIL, fault_of, medium_of
from .dataset_files import Limits, Row, sources
from .overlap import Signatures
from .tokenizers import RunTokenizer

if TYPE_CHECKING:
    from ..run.workspace import Workspace

Found = tuple[str, Any, Row]

LABELS = ("label", "labels", "target_label", "class", "class_id", "cls")
NEAR = 6000  # records compared for near duplicates
REPETITIVE, LEAST = 0.10, 500  # packed to less than a tenth; bytes of a text that is judged
RANDOM, RANDOM_LEAST = 0.72, 1000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]|\x1b\[")
_HALF = re.compile("[\ud800-\udfff]")
_SCRIPTS = ("LATIN", "CJK", "CYRILLIC", "ARABIC", "HANGUL", "HIRAGANA", "KATAKANA", "DEVANAGARI", "HEBREW", "THAI",
            "GREEK")  # fmt: skip


def ratio(text: str) -> float:
    """Bytes of a text when packed by zlib, as a share of its own."""
    data = text[:50_000].encode("utf-8", "replace")
    return len(zlib.compress(data, 1)) / max(1, len(data))


def body(row: Row) -> str:
    """All text of a record in one piece."""
    return "\n".join(row.texts())


def controls(rows: Sequence[Row]) -> Iterator[Found]:
    """Control characters and terminal escapes inside texts."""
    damaged = [r for r in rows if any(_CONTROL.search(t[:20000]) for t in r.texts())]
    for r in damaged[:2]:
        yield "control_characters", len(damaged), r


def halves(rows: Sequence[Row]) -> Iterator[Found]:
    """Halves of surrogate pairs, which JSON carries and no tokenizer takes."""
    damaged = [r for r in rows if any(_HALF.search(t[:20000]) for t in r.texts())]
    for r in damaged[:2]:
        yield "encoding_damage", len(damaged), r


def copies(rows: Sequence[Row]) -> Iterator[Found]:
    """Records that nearly repeat another, by MinHash over words; exact copies are another question's."""
    texts = [(n, text) for n, r in enumerate(rows[:NEAR]) if len(text := body(r)) >= 60]
    if len(texts) < 10:
        return
    by_text: dict[str, int] = {}
    signatures = Signatures()
    for n, text in texts:
        if by_text.setdefault(text, n) == n:
            signatures.add(n, text)
    pairs = list(signatures.pairs())
    share = len(pairs) / len(by_text)
    if len(pairs) >= 2 and share >= 0.02:
        yield "near_duplicates", round(share, 3), rows[pairs[0][1]]
        for _, n, _ in pairs[1:3]:
            yield "near_duplicates", round(share, 3), rows[n]


def packing(rows: Sequence[Row]) -> Iterator[Found]:
    """Texts that pack far too well (the same over and over) or hardly at all (no language)."""
    repetitive: list[tuple[float, Row]] = []
    random: list[Row] = []
    judged = 0
    for r in rows:
        text = max(r.texts(), key=len, default="")[:50_000]
        data = text.encode("utf-8", "replace")
        if len(data) < LEAST:
            continue
        judged += 1
        share = ratio(text)
        if share < REPETITIVE:
            repetitive.append((round(share, 4), r))
        elif share > RANDOM and len(data) >= RANDOM_LEAST and text.isascii() and text.count(" ") < len(text) / 50:
            random.append(r)
    for share, r in sorted(repetitive, key=lambda pair: pair[0])[:3]:
        yield "repetitive", share, r
    for r in random[:2]:
        yield "random_text", len(random), r
    if repetitive and len(repetitive) >= 0.01 * judged:
        yield "repetitive_share", round(len(repetitive) / judged, 3), repetitive[0][1]


def classes(rows: Sequence[Row]) -> Iterator[Found]:
    """Labels: one only, one for nearly all, or in blocks as if they had been sorted."""
    for name in LABELS:
        labelled = [(v, r) for r in rows if isinstance(v := r.fields.get(name), int | str) and not isinstance(v, bool)]
        if len(labelled) < 20 or 2 * len(labelled) < len(rows):
            continue
        counts = Counter(str(v) for v, _ in labelled)
        if len(counts) > 0.2 * len(labelled):
            continue  # free text
        share = max(counts.values()) / len(labelled)
        if len(counts) == 1:
            yield "single_class", str(labelled[0][0]), labelled[0][1]
        elif share > 0.95:
            yield "class_imbalance", round(share, 3), labelled[0][1]
        else:
            changes = [n for n in range(1, len(labelled)) if str(labelled[n][0]) != str(labelled[n - 1][0])]
            by_chance = (1 - sum(c * c for c in counts.values()) / len(labelled) ** 2) * len(labelled)
            if len(changes) < 0.1 * by_chance and len(labelled) >= 40:
                yield "sorted_by_label", len(changes), labelled[changes[0]][1]


def scripts(rows: Sequence[Row]) -> Iterator[Found]:
    """Records in a script that nearly all others do not use."""
    kinds = [(k, r) for r in rows if (k := _script(body(r)[:2000]))]
    counts = Counter(k for k, _ in kinds)
    rare = [(k, r) for k, r in kinds if counts[k] <= 0.02 * len(kinds)]
    if len(kinds) >= 100 and rare:
        yield "other_script", f"{rare[0][0].lower()}: {len(rare)} of {len(kinds)}", rare[0][1]


def _script(text: str) -> str:
    """The script of most letters, looked at in every tenth character of longer texts."""
    counts: Counter[str] = Counter()
    for c in text[:: max(1, len(text) // 200)]:
        if c.isascii():
            counts["LATIN"] += c.isalpha()
        elif c.isalpha():
            name = unicodedata.name(c, "")
            counts[next((s for s in _SCRIPTS if name.startswith(s)), "")] += 1
    return counts.most_common(1)[0][0] if counts and max(counts.values()) >= 10 else ""


def numbers(rows: Sequence[Row]) -> Iterator[Found]:
    """Fields of numbers that are not finite in some record."""
    for r in rows:
        for name, value in r.fields.items():
            odd = _not_finite(value)
            if odd:
                yield "not_finite", f"{name}: {odd}", r
                break


def _not_finite(value: Any) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return next((str(v) for v in value if isinstance(v, float) and (v != v or abs(v) == float("inf"))), "")
    return ""


def openings(rows: Sequence[Row], bos: int | None, eos: int | None) -> Iterator[Found]:
    """Token ids that begin with the same special token twice."""
    for r in rows:
        ids = r.fields.get("input_ids")
        if isinstance(ids, list) and len(ids) > 2 and bos is not None and bos != eos and ids[0] == ids[1] == bos:
            yield "bos_doubled", True, r
            return


def ranges(rows: Sequence[Row], vocabulary: int | None) -> Iterator[Found]:
    """Token ids that are negative (labels may be -100) or beyond the vocabulary."""
    for r in rows:
        for name in ("input_ids", "tokens", "token_ids", "ids"):
            ids = r.fields.get(name)
            if not (isinstance(ids, list) and ids and isinstance(ids[0], int) and all(isinstance(i, int) for i in ids)):
                continue
            if min(ids) < 0:
                yield "token_out_of_range", min(ids), r
            elif vocabulary and max(ids) >= vocabulary:
                yield "token_out_of_range", max(ids), r


# ----------
# Single records that can spoil a step: not finite, empty, far too long, out of range, without their picture.

FAR = 4  # times the length the run allows
LONGEST = 200_000  # tokens, where no length is set
PICTURES = 20_000  # files looked at
PICTURES_LEFT = "pictures"  # the name by which those beyond are told
_IDENTITY = ("id", "idx", "index", "sample_id", "sample_idx", "example_id", "uid", "data_id")
_LOSS = ("loss", "sample_loss", "nll", "per_sample_loss")
# Keys below `data.` that blame a record, with what they are called below `sample.`.
NAMES = {
    "empty_fields": "empty", "encoding_damage": "encoding", "label_out_of_range": "out_of_range",
    "not_finite": "not_finite",
    "token_out_of_range": "out_of_range", "all_masked": "all_masked", "control_characters": "encoding",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """The pictures and sounds of a run, by their last names and by their kinds."""

    bases: Set[str]
    media: Set[str]

    def misses(self, path: str) -> bool:
        """Whether a picture is named that is not there, in a run that holds pictures of that kind."""
        return medium_of(path) in self.media and path.replace("\\", "/").rsplit("/", 1)[-1] not in self.bases


def held_media(ws: Workspace) -> Held:
    """What a record may refer to."""
    named = {f.name.rsplit("/", 1)[-1] for f in ws.files if medium_of(f.name)}
    return Held(named, {medium_of(n) for n in named})


def faults_of(row: Row, limits: Limits, vocabulary: int | None, held: Held) -> Iterator[tuple[str, Any]]:
    """What is wrong with one record: key below `sample.` and value.

    Args:
        held: pictures and sounds of the run, to miss one that a record refers to.
    """
    one: list[Record] = [row]
    found = [
        *samples.empties(one),
        *samples.damage(one),
        *samples.ranges(one, limits.classes, vocabulary),
        *numbers([row]),
        *ranges([row], vocabulary),
        *controls([row]),
        *halves([row]),
    ]
    said: set[str] = set()
    for key, value, _ in found:
        if (name := NAMES[key]) not in said:
            said.add(name)
            yield name, value
    length = sum(estimate(t) for t in row.texts()) or max(
        (len(v) for v in row.fields.values() if isinstance(v, list)), default=0
    )
    if length > (FAR * limits.tokens if limits.tokens else LONGEST):
        yield "too_long", length
    for name in MEDIA:
        value = row.fields.get(name)
        for path in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
            if isinstance(path, str) and medium_of(path) and held.misses(path):
                yield "media_missing", path[:200]
                return


def broken_pictures(ws: Workspace) -> Iterator[tuple[RunFile, str]]:
    """Picture and sound files of the run that are empty, cut off or something else."""
    pictures = [f for f in ws.files if medium_of(f.name) and not f.good]
    if len(pictures) > PICTURES:
        ws.tell(PICTURES_LEFT, f"{len(pictures) - PICTURES} of {len(pictures)} were not looked at")
    for file in pictures[:PICTURES]:
        deadline.check()
        try:
            with open_regular(file.path) as raw:
                head = raw.read(HEAD)
                raw.seek(max(0, file.size - TAIL))
                tail = raw.read(TAIL)
        except (OSError, ParseError) as e:
            ws.tell(file.name, f"cannot be read: {e}")
            continue
        if why := fault_of(file.name, file.size, head, tail):
            yield file, why


def losses(rows: Sequence[Row]) -> Iterator[tuple[str, Any, Row]]:
    """Records of a per-sample loss log: not finite, or far above all others."""
    given = [(v, r) for r in rows if (v := _loss(r)) is not None]
    finite = sorted(v for v, _ in given if v == v and abs(v) != float("inf"))
    for v, r in given:
        if v != v or abs(v) == float("inf"):
            yield "loss_not_finite", str(_identity(r)), r
    if len(finite) < 20:
        return
    median = finite[len(finite) // 2]
    spread = sorted(abs(v - median) for v in finite)[len(finite) // 2] * 1.4826
    high = [(v, r) for v, r in given if abs(v) != float("inf") and v > max(median + 12 * spread, 3 * abs(median))]
    for _, r in sorted(high, key=lambda pair: -pair[0]):
        yield "loss_outlier", str(_identity(r)), r


def is_loss_log(row: Row) -> bool:
    """Whether a record names a sample and its loss."""
    return _loss(row) is not None and any(n in row.fields for n in _IDENTITY)


def _identity(row: Row) -> Any:
    return next((row.fields[n] for n in _IDENTITY if n in row.fields), row.number)


def _loss(row: Row) -> float | None:
    value = next((row.fields[n] for n in _LOSS if n in row.fields), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


# ----------
# How long the records are, in tokens of the run's tokenizer or by estimate, against the length the run allows.

CALIBRATION = 200  # records whose tokens are counted to learn the ratio
EXACT = 400  # more, near and over the limit


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of every record. `exact` where the longest were counted by the run's tokenizer."""

    tokens: list[int]
    exact: bool
    how: str

    def quantile(self, share: float) -> int:
        """The length that `share` of the records do not exceed."""
        return sorted(self.tokens)[min(len(self.tokens) - 1, int(share * len(self.tokens)))] if self.tokens else 0


def lengths(rows: Sequence[Row], tokenizer: RunTokenizer | None, limit: int | None) -> Lengths:
    """Token counts: of lists of ids their length, of text counted or estimated."""
    rough = [_ids(r) or sum(estimate(t) for t in r.texts()) for r in rows]
    texts = [n for n, r in enumerate(rows) if not _ids(r)]
    if tokenizer is None or not tokenizer.counts or not texts:
        why = "counted ids" if not texts else "an estimate of four characters a token"
        return Lengths(rough, not texts, why)
    some = texts[:: max(1, len(texts) // CALIBRATION)][:CALIBRATION]
    counted = dict(zip(some, tokenizer.lengths(["\n".join(rows[n].texts()) for n in some]), strict=True))
    factor = sum(counted.values()) / max(1, sum(rough[n] for n in some))
    out = [counted.get(n, v if _ids(rows[n]) else round(v * factor)) for n, v in enumerate(rough)]
    near = sorted((n for n in texts if n not in counted), key=lambda n: -out[n])
    if limit:
        near = [n for n in near if out[n] > 0.6 * limit]
    near = near[:EXACT]
    for n, value in zip(near, tokenizer.lengths(["\n".join(rows[n].texts()) for n in near]), strict=True):
        out[n] = value
    return Lengths(out, True, f"tokens of {tokenizer.file.name}")


def _ids(row: Row) -> int:
    ids = row.fields.get("input_ids")
    return len(ids) if isinstance(ids, list) else 0


# ----------
# Files in UTF-8 that the run was told to read as something else, which for encodings of one byte never fails.

BYTES = 1 << 20  # of a data file that are looked at
FILES = 12
FEWEST = 8  # letters of several bytes, from which a file's encoding shows
_KEY = re.compile(r"(?:^|[._-])(?:file_?|text_?|data_?|input_?|source_?)?(?:encoding|charset|codec)$", re.IGNORECASE)
_CALL = re.compile(
    r"""\b(?:open|read_csv|read_table|read_json|read_text|TextIOWrapper|loadtxt|genfromtxt)\s*\([^#\n]*?
    \bencoding\s*=\s*["'](?P<name>[\w -]{3,20})["']""",
    re.VERBOSE,
)
_TEXTS = ("jsonl", "json", "csv", "tsv", "text")
_ONE_BYTE = re.compile(r"iso8859-|cp125\d|cp437|cp850|mac-|koi8-|latin|charmap")
_SEVERAL = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")


def misread(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    """Where an encoding of one byte is asked for, although the data are UTF-8: the line, and the encoding's name."""
    asked = [*_settings(ws), *_calls(ws)]
    texts = [s.file for s in sources(ws) if s.kind in _TEXTS][:FILES] if asked else []
    if data := next((f for f in texts if not f.good and is_utf8(ws, f)), None):
        for file, line, name in asked:
            yield file, line, f"{name}, {data.name} is utf-8"


def is_utf8(ws: Workspace, file: RunFile) -> bool:
    """Whether a text has letters of several bytes, all of them whole."""
    head = ws.read(file, BYTES)
    if b"\0" in head[:4096] or len(_SEVERAL.findall(head)) < FEWEST:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # may end within a letter
    except UnicodeDecodeError:
        return False
    return True


def _settings(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    for s in read_settings(ws).all:
        if isinstance(s.value, str) and not s.used and not s.file.good and _KEY.search(s.key) and of_one_byte(s.value):
            yield s.file, s.line, s.value


def _calls(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    for file in [f for f in ws.by_role("code") if f.size < BYTES and f.name.endswith(".py")][:40]:
        for line in ws.lines(file):
            if (m := _CALL.search(line.text[:1000])) and of_one_byte(m["name"]):
                yield file, line, m["name"]


def of_one_byte(name: str) -> bool:
    """Whether a name is that of an encoding in which every byte is a letter."""
    try:
        return bool(_ONE_BYTE.match(codecs.lookup(name.strip()).name))
    except (LookupError, ValueError):
        return False
