"""The one choke point for secrets: what leaves the machine or is made to be passed on goes through here.

A secret becomes a placeholder that keeps its identity (`<SECRET:hf:1>`), so that two uses of one key still read
as the same key. Kinds are rows of a table; adding one is adding a row with its proof to `tests/test_redact.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret. `pattern` has a group `secret`; `words` (lower case) must occur for it to be tried."""

    name: str
    pattern: re.Pattern[str]
    words: tuple[str, ...]


def _kind(name: str, pattern: str, *words: str) -> Kind:
    return Kind(name, re.compile(pattern), words)


_VALUE = r"""(?P<secret>[^\s"'`,;&|<>\[\](){}$]{6,300})"""
_NAMED = (
    r"(?<![<\w.-])(?i:[\w.-]{0,60}?(?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?secret|"
    r"auth[_-]?token|access[_-]?token|hf[_-]?token|_token|password|passwd|secret))"
)

KINDS: tuple[Kind, ...] = (
    _kind("pem", r"(?P<secret>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,8000}(?:-----END [A-Z ]{0,30}KEY-----)?)",
          "private key"),
    _kind("hf", r"\b(?P<secret>(?:hf_|api_org_)[A-Za-z]{30,40})\b", "hf_", "api_org_"),
    _kind("anthropic", r"\b(?P<secret>sk-ant-[A-Za-z0-9_-]{20,150})", "sk-ant-"),
    _kind("openai", r"\b(?P<secret>sk-(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,200})", "sk-"),
    _kind("wandb", r"\b(?P<secret>wandb_v\d_[A-Za-z0-9_-]{20,200})", "wandb_v"),
    _kind("wandb", r"(?i)wandb[\w .:=\"'-]{0,40}?(?P<secret>\b[0-9a-f]{40}\b)", "wandb"),
    _kind("nvidia", r"\b(?P<secret>nvapi-[A-Za-z0-9_-]{20,120})", "nvapi-"),
    _kind("aws", r"\b(?P<secret>(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16})\b", "akia", "asia", "abia", "acca"),
    _kind("github", r"\b(?P<secret>gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{22,251})",
          "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _kind("gitlab", r"\b(?P<secret>glpat-[A-Za-z0-9_-]{20,60})", "glpat-"),
    _kind("google", r"\b(?P<secret>AIza[A-Za-z0-9_-]{35})", "aiza"),
    _kind("slack", r"(?P<secret>xox[abeoprs]-[A-Za-z0-9-]{10,200}|https://hooks\.slack\.com/services/[\w/]{20,100})",
          "xox", "hooks.slack.com"),
    _kind("pypi", r"\b(?P<secret>pypi-[A-Za-z0-9_-]{50,250})", "pypi-"),
    _kind("jwt", r"\b(?P<secret>eyJ[\w-]{8,2000}\.eyJ[\w-]{8,4000}\.[\w-]{8,1000})", "eyj"),
    _kind("url", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:(?P<secret>[^\s/@]{1,200})@", "://"),
    _kind("signature", r"(?i)[?&](?:x-amz-signature|x-amz-credential|x-amz-security-token|sig|signature|token)="
          r"(?P<secret>[^\s&\"']{8,2000})", "sig", "token", "x-amz"),
    _kind("header", r"(?i)\b(?:authorization|x-api-key|cookie)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer |basic |token )?"
          r"(?P<secret>[^\s\"',]{8,2000})", "authorization", "x-api-key", "cookie"),
    _kind("bearer", r"(?i)\bbearer\s{1,3}(?P<secret>[A-Za-z0-9._~+/=-]{16,2000})", "bearer"),
    _kind("netrc", r"(?i)\bmachine\s{1,5}\S{1,100}\s{1,5}login\s{1,5}\S{1,100}\s{1,5}"
          r"password\s{1,5}(?P<secret>\S{1,200})", "machine"),
    _kind("flag", r"(?i)--(?:api[-_]key|token|password|secret|hub[-_]token|hf[-_]token|wandb[-_]key)"
          rf"[ =]['\"]?{_VALUE}", "--"),
    _kind("named", rf"{_NAMED}[\"']?\s{{0,3}}(?:=|:(?!:)|=>)\s{{0,3}}[rbf]?[\"']?{_VALUE}",
          "key", "token", "secret", "passw"),
)  # fmt: skip

_PLACEHOLDER = re.compile(r"<SECRET:[a-z]+:\d+>")
# What stands behind `token=` and `key:` in training logs without being a secret.
_HARMLESS = re.compile(
    r"(?i)^(?:none|null|true|false|\d[\d.,]*(?:e[+-]?\d+)?|os\.environ\S*|env\S*|args\.\S*|self\.\S*|config\.\S*|"
    r"\*+|x{3,}|your[-_]\S*|changeme|redacted\S*|secret:\S*|/\S*|[a-z_]+(?:\.[a-z_]+)*)$"
)


@dataclass(slots=True)
class Redactor:
    """Takes secrets out of any number of texts and counts them.

    Attributes:
        found: kind and number of each distinct secret; the secrets themselves are not shown.
    """

    count: int = 0
    _known: dict[str, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def redact(self, text: str) -> str:
        """The text with a placeholder for each secret; the same secret gets the same placeholder."""
        folded = text.casefold()
        for kind in KINDS:
            if any(word in folded for word in kind.words):
                text = kind.pattern.sub(lambda m, k=kind: self._replaced(m, k.name), text)
        return text

    def _replaced(self, match: re.Match[str], kind: str) -> str:
        secret = match["secret"]
        if _PLACEHOLDER.search(secret) or (kind in ("named", "flag", "header", "signature") and not _secretive(secret)):
            return match[0]
        if secret not in self._known:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            self._known[secret] = f"<SECRET:{kind}:{self._numbers[kind]}>"
        self.count += 1
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return match[0][:start] + self._known[secret] + match[0][end:]

    @property
    def found(self) -> dict[str, int]:
        """How many distinct secrets of each kind."""
        return dict(self._numbers)


def _secretive(value: str) -> bool:
    """Whether a value after a telling name is a secret: not a number, a name in code, a path or a blank."""
    return not _HARMLESS.match(value.rstrip(".,:"))
