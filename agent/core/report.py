"""The report: what `--json` prints, schema `traindoctor.report/1`. Every boundary of doctor speaks this model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = "traindoctor.report/1"
Status = Literal["confirmed", "likely", "hypothesis", "healthy", "insufficient_evidence", "answer"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunSummary(_Part):
    """One of the runs looked at, and how it ended."""

    id: str
    root: str
    good: bool = False
    state: Literal["died", "hung", "running", "finished", "unknown"] = "unknown"


class FirstFailure(_Part):
    """Where it broke first: smallest comparable time, not first printed."""

    rank: int | None = None
    host: str | None = None
    step: int | None = None
    time: str | None = None
    attempt: int | None = None


class RootCause(_Part):
    """The verdict. `id` is null only for a knowledge answer."""

    id: str | None
    title: str = ""
    playbook: str | None = None
    confidence: float = Field(0.0, ge=0, le=1)
    first_failure: FirstFailure = FirstFailure()


class AlsoFound(_Part):
    """An independent second finding."""

    id: str
    confidence: float = Field(ge=0, le=1)
    cites: list[str] = []


class Sentence(_Part):
    """A claim and the evidence it stands on. Of a preflight, `level` says whether it stops the job."""

    text: str
    cites: list[str] = []
    level: Literal["", "stops", "look"] = ""


class Differential(_Part):
    """A cause that was weighed. The first is the root cause; confidences add up to at most 1."""

    id: str
    title: str = ""
    confidence: float = Field(ge=0, le=1)
    supported_by: list[str] = []
    contradicted_by: list[str] = []
    missing: list[str] = []


class CitedEvidence(_Part):
    """One observed fact; see `types.Evidence` for the fields."""

    id: str
    key: str
    value: Any = None
    rank: int | None = None
    host: str | None = None
    attempt: int | None = None
    variant: str | None = None
    step: int | None = None
    time: str | None = None
    kind: Literal["line", "command", "binary", "absent", "asked", "document"]
    file: str | None = None
    line: int | None = None
    offset: int | None = None
    text: str = ""
    cut: bool = False
    argv: list[str] | None = None
    member: str | None = None
    searched: list[str] | None = None
    run: str = "r1"
    tool: str = ""


class ChainLink(_Part):
    """A step from cause to cascade, in order of events."""

    evidence: str
    role: Literal["cause", "trigger", "symptom", "cascade"]
    text: str


class Checked(_Part):
    """What was looked at, also when it was clean or could not be looked at."""

    tool: str
    outcome: Literal["finding", "clean", "not_applicable", "not_allowed", "failed"]
    why: str


class ByHand(_Part):
    """A change that no file of the run carries: the text to put in, where it goes, and why no patch does it."""

    text: str
    where: str = ""
    why: str = ""


class ReportFix(_Part):
    """A repair: words and commands, with the patches that carry it out. All of its patches belong together.

    `finds` marks what only helps to see or prove the cause: the run is no better for it.
    """

    title: str
    finds: bool = False
    why: str = ""
    risk: str = ""
    commands: list[str] = []
    patches: list[str] = []
    by_hand: list[ByHand] = []
    verify: str = ""

    @property
    def named(self) -> str:
        """Its title, which tells what only helps to find the cause from a repair."""
        return f"A help, no repair: {self.title}" if self.finds else self.title


class Patch(_Part):
    """A unified diff for one file of the run, made for the content with this sha256.

    `edits` says in words what it changes, one line each; `by` who thought of it: what a model proposes is always
    asked about.
    """

    id: str
    file: str
    sha256: str
    diff: str
    title: str = ""
    why: str = ""
    risk: str = ""
    verify: str = ""
    edits: list[str] = []
    by: Literal["playbook", "model"] = "playbook"


class Choice(_Part):
    """A checkpoint to go on from: what is lost with it, and the commands that resume it.

    `clean` is null where it was not read. `lost_gpu_hours` counts the steps since it on all GPUs of the job.
    """

    checkpoint: str
    step: int | None = None
    clean: bool | None = None
    lost_steps: int | None = None
    lost_gpu_hours: float | None = None
    resume: list[str] = []
    why: str = ""


class Before(_Part):
    """An earlier diagnosis of the same kind, from this team's history. `same` names what the two share."""

    session: str
    time: str
    cause: str
    status: Status
    same: list[Literal["cause", "job", "node"]] = []
    nodes: list[str] = []


class Restart(_Part):
    """Whether starting again helps, from where, and whether this has come before. `choices`: the best first."""

    advice: Literal["restart", "restart_excluding", "fix_first", "stop"]
    from_checkpoint: str | None = None
    lost_steps: int | None = None
    lost_gpu_hours: float | None = None
    exclude: list[str] = []
    choices: list[Choice] = []
    before: list[Before] = []


class Tokens(_Part):
    """Tokens sent and received."""

    in_: int = Field(default=0, alias="in", serialization_alias="in")
    out: int = 0
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Ranked(_Part):
    """What the evidence says by itself, beside a model's verdict."""

    id: str
    confidence: float = Field(ge=0, le=1)
    status: Status


class Meta(_Part):
    """How the report was made.

    `planner` is `llm` only where a model gave the verdict; `ranking` is then what was found without it. `cost` is null
    without prices. `history` tells how this team's earlier diagnoses and corrections moved the ranking.
    """

    planner: Literal["offline", "llm"] = "offline"
    model: str | None = None
    ranking: Ranked | None = None
    version: str = ""
    seconds: float = 0.0
    tool_calls: int = 0
    model_calls: int = 0
    tokens: Tokens = Field(default_factory=Tokens)
    cost: float | None = None
    redacted: int = 0
    history: list[str] = []
    degraded: list[str] = []


class Report(_Part):
    """A diagnosis with everything it stands on."""

    schema_: str = Field(default=SCHEMA, alias="schema", serialization_alias="schema")
    session: str = ""
    question: str = ""
    status: Status
    runs: list[RunSummary] = []
    root_cause: RootCause
    also: list[AlsoFound] = []
    summary: list[Sentence] = []
    differential: list[Differential] = []
    evidence: list[CitedEvidence] = []
    chain: list[ChainLink] = []
    checked: list[Checked] = []
    fixes: list[ReportFix] = []
    patches: list[Patch] = []
    next_steps: list[str] = []
    restart: Restart | None = None
    meta: Meta = Meta()
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    def to_json(self) -> str:
        """The report as `--json` prints it, with the published field names."""
        return self.model_dump_json(by_alias=True, indent=2)
