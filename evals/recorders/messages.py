"""Make knowledge/messages.tsv: the messages of the libraries, read from their sources. `make messages`.

A library's source is a wheel from the package index, of each of the versions below, a git directory (`--mirror`, as for
`make checkouts`), or what is installed beside doctor. Its print, logger and warning calls are read with the reader that
reads the statements of a run's own program; nothing is imported or executed.

Behind the head of a library (`= name version version ...`) a row is one line that it prints:

    wn02 override<TAB>max_steps is given, it will override any value given in num_train_epochs

level, kind, first and last of its versions; the rare word by which it is found; the text with `{}` for what an
expression filled in. Kinds: notice (advice, what was set, deprecations), event (that something happened), trouble
(words of a failure: such a line is told, never set aside) and payload (text of the data fills it, marked d).
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from ...agent.reading.run.lines import strip
from ...agent.reading.run.program.library_messages import HOLE, TABLE, WORD
from ...agent.reading.run.program.statements import Statement, lines_of, statements
from ...agent.reading.scan.anchors import cascade_kind

KEPT = Path(__file__).parents[2] / "build/messages"
# Releases from the package index, the oldest first: distribution -> folder of its sources, versions. What is installed
# beside doctor comes last and is the newest; `torch` is read from there alone, as a wheel of it has a gigabyte.
WHEELS = {
    "torch": ("torch", ()),
    "transformers": ("transformers", ("4.38.2", "4.46.3", "4.57.1")),
    "accelerate": ("accelerate", ("0.34.2", "1.1.1")),
    "datasets": ("datasets", ("2.21.0", "4.4.1")),
    "huggingface-hub": ("huggingface_hub", ("0.26.2",)),
    "peft": ("peft", ("0.13.2",)),
    "trl": ("trl", ("0.9.6", "0.12.2", "0.24.0")),
    "pytorch-lightning": ("pytorch_lightning", ("1.9.5", "2.4.0")),
    "lightning-fabric": ("lightning_fabric", ("2.4.0",)),
    "torchmetrics": ("torchmetrics", ("1.4.3",)),
    "deepspeed": ("deepspeed", ()),
    "megatron-core": ("megatron", ("0.14.0",)),
    "torchtitan": ("torchtitan", ("0.2.0",)),
    "nemo-toolkit": ("nemo", ("2.2.1",)),
    "verl": ("verl", ("0.6.0",)),
    "sglang": ("sglang", ("0.5.4",)),
    "ray": ("ray", ("2.38.0",)),
    "hydra-core": ("hydra", ("1.3.2",)),
    "wandb": ("wandb", ("0.18.7",)),
    "scikit-learn": ("sklearn", ()),
}
# Repositories that publish no wheel of this: name -> git directory of `--mirror`, folder, revisions.
GIT = {
    "megatron-lm": ("NVIDIA+Megatron-LM", "megatron/training", ("HEAD",)),
    "deepspeed": ("deepspeedai+DeepSpeed", "deepspeed", ("v0.14.4",)),
}
# What no training prints: tests, tools of their own, compilers' insides, other tasks than models of language.
_ASIDE = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|docs?|benchmarks?|_?vendor(?:ed)?|third_?party|thirdparty_files|commands|cli"
    r"|scripts?|tools?|onnx|_?export|jit|quantization|conversion|converters?|sdk|launch|apis|f2py|distutils|frontend"
    r"|_inductor/(?:fx_passes|kernel|codegen|runtime|template_heuristics)|_nnapi|_strobelight|nested|data/_internal|search"
    r"|ray/(?:data|util|_core)|nemo/(?:export|deploy|collections)|deepspeed/(?:autotuning|ops|compile)|sglang/srt/(?!managers|mem_cache|model_executor)\w+|lora|entrypoints|function_call"
    r"|fx|ao|_functorch|_refs|_prims|_higher_order_ops|_subclasses|sparse|masked|package|hipify|_sympy|xeon|_numpy"
    r"|asr|tts|audio|vision|multimodal|multimodal_gen|diffusion|speechlm\w*|vlm|avlm|speech|disaggregation|hardware_backend"
    r"|rllib|dashboard|autoscaler|serve|workflow|jobs?|job_submission|llm/_internal|dag|experimental|scripts|runtime_env"
    r"|model_implementations|module_inject|inference|nebula|linear|image_processing|feature_extraction)/"
    r"|(?:^|/)(?:test_|convert_|debug|repro|pgo|_?setup|conftest|benchmark|demo|__main__|modeling_tf_|modeling_flax_|tf_|flax_|keras)[^/]*\.py$"
    r"|_(?:test|tf|flax)\.py$|(?:^|/)convert\w*\.py$"
)
_MODEL = re.compile(r"^(?:transformers|sglang/srt)/(?:models|layers)/([\w-]+)")
_QUIET = frozenset(
    {
        "torch",
        "transformers",
        "scikit-learn",
        "datasets",
        "ray",
        "sglang",
        "nemo-toolkit",
        "huggingface-hub",
        "deepspeed",
    }
)  # their prints are of tools
_SERVICES = frozenset({"ray", "sglang", "nemo-toolkit", "wandb", "verl", "huggingface-hub"})  # their errors are many
LONGEST = 60  # characters of a row; what a longer message says behind them is a place
FEWEST, WORDS = 14, 3  # letters and words of fixed text by which a line is known
_WORDS = re.compile(r"[A-Za-z]{3,}")
LARGEST = 3_000_000  # bytes of a source
# Words of a failure; the weaker ones count where the message does not go on to say what is done instead.
_FAILED = re.compile(
    r"(?i)\b(?:errors?|fail(?:ed|ure|s|ing)?|fatal|nans?|infs?|infinite|overflow\w*|underflow\w*|crash\w*|corrupt\w*"
    r"|abort\w*|kill\w*|died|dead|hangs?|hung|hanging|stuck|timed? ?out|timeout|lost|refused|denied|out of memory|oom"
    r"|unreachable|disconnect\w*|interrupt\w*|terminat\w*|exception|traceback|diverg\w*|spikes?|wrong\w*|incorrect\w*"
    r"|broken|stall\w*|leak\w*|not initialized|newly initialized|uninitialized|zero gradients?|skipping step"
    r"|death|shutting down|no (?:accelerator|gpu|cuda)\w*|not (?:available|installed)"
    r"|no space|SIG(?:TERM|KILL|INT|USR\d)|exiting|unbalanced)\b"
)
_AMISS = re.compile(
    r"(?i)\b(?:unable|cannot|can't|can not|could not|couldn't|mismatch\w*|missing|not (?:be )?(?:found|exist|load\w*)"
    r"|not (?:be )?available|invalid|unexpected|exceed\w*|not match|shapes?|truncat\w*|skipp?ing|skipped|dropped"
    r"|not divisible|empty|no such|does not exist|doesn't exist|incompatible|bad|inconsistent\w*|differ\w*|unused"
    r"|unknown|not used|nothing|not enough|insufficient|too many|negative)\b"
)
_INSTEAD = re.compile(
    r"(?i)\b(?:setting|using|fall(?:ing|s)? back|disabling|ignor\w+|stopping"
    r"|will be (?:set|used|ignored|disabled|overridden|updated)|defaulting|default (?:to|value)"
    r"|by default|the default|instead|set it|was set|were aligned)\b"
)
# What may happen, would happen, or is done to prevent it.
_SUPPOSED = re.compile(
    r"(?i)\b(?:may|might|could (?:lead|result|cause|be)|can (?:lead|result|cause|be)|if|avoid|prevent\w*|in case|would"
    r"|will (?:result|raise|be|fail|cause)|unless|in the future|deprecated|to (?:disable|suppress|silence)"
    r"|recommended|should)\b"
)
_ADVICE = re.compile(
    r"(?i)\b(?:deprecat\w+|please|recommend\w*|consider|you (?:should|can|may|might)|instead|ignor\w+|override\w*"
    r"|overwrit\w+|falling back|fallback|experimental|warning)\b"
)
_DATA = re.compile(
    r"(?i)prompt|completion|response|text|decode|sentence|question|answer|dialog|generated|solution|truth"
)
# An expression that may come to the words of a failure.
_ERROR = re.compile(r"(?i)^(?:str\(|repr\()?(?:e|ex|err|msg|message|reason|cause|tb|output)\)?$|exc|error|stderr|fail")
_NO_DATA = re.compile(
    r"(?i)len\(|shape|num_|n_|length|size|max_|min_|count|ids?\b|path|dir|file|config|key|name|class|type|col"
)


class Row:
    """One line of a message: where it was seen, its level and kind, its text."""

    def __init__(self, library: str, level: str, kind: str, template: str) -> None:
        self.library, self.level, self.kind, self.template = library, level, kind, template
        self.seen: list[str] = []
        self.models: set[str] = set()  # that print it; empty name: what serves all of them

    @property
    def general(self) -> bool:
        """Whether more than one model's own code prints it."""
        return "" in self.models or len(self.models) > 1


def main() -> None:
    """Read all releases and write the table."""
    parser = argparse.ArgumentParser(description="Read the messages of the libraries into knowledge/messages.tsv.")
    parser.add_argument("--mirror", type=Path, required=True, help="folder of git directories, OWNER+NAME each")
    mirror = parser.parse_args().mirror
    rows: dict[str, Row] = {}
    versions: dict[str, list[str]] = defaultdict(list)
    for library, release, sources in _releases(mirror):
        versions[library].append(release)
        for row in rows_of(library, sources):
            known = rows.setdefault(row.template, row)
            known.models |= row.models
            if known.library == library and release not in known.seen:
                known.seen.append(release)
        sys.stderr.write(f"{library} {release}: {sum(r.library == library for r in rows.values())} rows\n")
    kept = [row for row in rows.values() if row.general]
    TABLE.write_text(_table(kept, versions), encoding="utf-8")
    sys.stderr.write(f"{TABLE}: {len(kept)} rows, {TABLE.stat().st_size} bytes\n")


# ----------
# Where the sources come from.


def _releases(mirror: Path) -> Iterator[tuple[str, str, Iterator[tuple[str, bytes]]]]:
    """Each release of each library with its sources."""
    installed = packages_distributions()
    for library, (folder, releases) in {**WHEELS, **{n: ("", ()) for n in GIT if n not in WHEELS}}.items():
        for release in releases:
            yield library, release, _wheel(library, release, folder)
        repository, within, revisions = GIT.get(library, ("", "", ()))
        for revision in revisions:
            home = mirror / repository
            yield library, _dated(home, revision), _archive(home, revision, within)
        spec = find_spec(folder) if folder else None
        if spec is not None and spec.origin is not None:
            yield library, version(installed[folder][0]), _folder(Path(spec.origin).parent)


def _wheel(library: str, release: str, folder: str) -> Iterator[tuple[str, bytes]]:
    name = f"{library.replace('-', '_')}-{release}-*.whl"
    if not list(KEPT.glob(name)):
        KEPT.mkdir(parents=True, exist_ok=True)
        asked = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(KEPT), f"{library}=={release}"]
        subprocess.run([sys.executable, "-m", "pip", *asked], check=True)
    with zipfile.ZipFile(next(KEPT.glob(name))) as wheel:
        for entry in wheel.infolist():
            if entry.filename.startswith(f"{folder}/") and entry.filename.endswith(".py"):
                yield entry.filename, wheel.read(entry)


def _dated(git_dir: Path, revision: str) -> str:
    """A tag as it is; of a branch the day of its last change."""
    if revision != "HEAD":
        return revision.lstrip("v")
    command = ["git", "--git-dir", str(_git(git_dir)), "log", "-1", "--format=%cs"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _git(folder: Path) -> Path:
    return folder / "repo" if (folder / "repo").is_dir() else folder


def _archive(git_dir: Path, revision: str, folder: str) -> Iterator[tuple[str, bytes]]:
    command = ["git", "--git-dir", str(_git(git_dir)), "archive", revision, folder]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.name.endswith(".py") else None
            if stream is not None:
                yield member.name, stream.read()


def _folder(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*.py")):
        yield path.relative_to(folder.parent).as_posix(), path.read_bytes()


# ----------
# From sources to rows.


def rows_of(library: str, sources: Iterable[tuple[str, bytes]]) -> Iterator[Row]:
    """The rows of a library's messages, in the order of its sources, each name and content; broken ones have none."""
    for name, source in sources:
        if _ASIDE.search(name) or len(source) > LARGEST:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source.decode(errors="replace"))
        except (SyntaxError, ValueError, RecursionError):
            continue
        model = m[1] if (m := _MODEL.match(name)) else ""
        for statement in statements(tree, name):
            if statement.level == "debug" or (not statement.level and library in _QUIET):
                continue
            for row in _lines(library, statement):
                if row.level != "e" or library not in _SERVICES:
                    row.models.add(model)
                    yield row


def _lines(library: str, statement: Statement) -> Iterator[Row]:
    level = {"info": "i", "": "p"}.get(statement.level, "w")
    level = "e" if statement.level in ("error", "exception", "critical") else level
    for pieces in lines_of(statement):
        fixed = " ".join(t for t, _ in pieces if t)
        text = "".join(HOLE if t is None else t.replace("{", "{{").replace("}", "}}") for t, _ in pieces)
        template = re.sub(r"(?:\{\}){2,}", HOLE, strip(re.sub(r"\s+", " ", text).strip()).body)
        if len(template) > LONGEST:
            template = template[:LONGEST].rpartition(" ")[0].rstrip("{} ") + " " + HOLE
        words = _WORDS.findall(template)
        if sum(map(len, words)) >= FEWEST and len(set(words)) >= WORDS and template.isprintable():
            yield Row(library, level, _kind(level, fixed, pieces), template)


def _kind(level: str, fixed: str, pieces: list[tuple[str | None, str | None]]) -> str:
    stated = [c for c in re.split(r"(?<=[.;!?]) ", fixed) if not _SUPPOSED.search(c)]
    amiss = any(map(_AMISS.search, stated)) and not _INSTEAD.search(fixed)
    carried = any(source and _ERROR.search(source) for _, source in pieces)
    follows = cascade_kind("".join(text if text is not None else "7" for text, _ in pieces).strip())
    if level == "e" or amiss or carried or follows or any(map(_FAILED.search, stated)):
        return "t"
    if any(source and _DATA.search(source) and not _NO_DATA.search(source) for _, source in pieces):
        return "d"
    return "n" if level == "w" or _ADVICE.search(fixed) else "e"


def _table(rows: list[Row], versions: dict[str, list[str]]) -> str:
    spread = Counter(word for row in rows for word in set(_whole(row.template)))
    said = ["# Made by `make messages` (evals/recorders/messages.py) from the sources of these releases."]
    for library, releases in versions.items():
        own = sorted((r for r in rows if r.library == library), key=lambda r: r.template)
        if own:
            said.append(f"= {library} {' '.join(releases)}")
        for row in own:
            words = _whole(row.template)
            if words:
                word = min(words, key=lambda w: (spread[w], -len(w)))
                span = f"{releases.index(row.seen[0])}{releases.index(row.seen[-1])}"
                said.append(f"{row.level}{row.kind}{span} {word}\t{row.template}")
    return "\n".join(said) + "\n"


def _whole(template: str) -> list[str]:
    """Words that no place touches: they stand in the line as they are here."""
    text = re.sub(r"[\w]*\{\}[\w]*", " ", template.replace("{{", " ").replace("}}", " "))
    return WORD.findall(text)


if __name__ == "__main__":
    main()
