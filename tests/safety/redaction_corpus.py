"""Made-up secrets of every kind in the lines that runs print; made at run time, so that no scanner takes them for leaks.

`planted` gives them as they are, `disguised` the same wrapped, coloured, encoded, escaped or quoted.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

WORD = string.ascii_letters + string.digits
URLSAFE = WORD + "-_"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
BASE64 = WORD + "+/"


@dataclass(frozen=True, slots=True)
class Planted:
    """A text with secrets: none of them, nor a half of one that was split, may be in what is passed on."""

    kind: str
    text: str
    secrets: tuple[str, ...]
    way: str = "plain"


class Dice:
    """Strings drawn from an alphabet, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, n: int, alphabet: str = WORD) -> str:
        return "".join(self.random.choice(alphabet) for _ in range(n))

    def password(self) -> str:
        """Eight to sixteen characters that are no word."""
        return self(self.random.randrange(7, 15)) + self(1, string.digits) + self.random.choice("!%+.-_^~")


# What each kind looks like. `+` splits keep the source free of anything that reads like a key.
TOKENS: dict[str, Callable[[Dice], str]] = {
    "anthropic": lambda d: "sk-" + "ant-" + "api03-" + d(93, URLSAFE) + "AA",
    "openai": lambda d: "sk-" + d(20) + "T3Blbk" + "FJ" + d(20),
    "openai-project": lambda d: "sk-" + "proj-" + d(74, URLSAFE),
    "openai-service": lambda d: "sk-" + "svcacct-" + d(60, URLSAFE),
    "openai-admin": lambda d: "sk-" + "admin-" + d(60, URLSAFE),
    "openrouter": lambda d: "sk-" + "or-v1-" + d(64, HEX),
    "hf": lambda d: "hf" + "_" + d(34, string.ascii_letters),
    "hf-organisation": lambda d: "api_" + "org_" + d(34, string.ascii_letters),
    "wandb": lambda d: "wandb" + "_v1_" + d(60),
    "nvidia": lambda d: "nv" + "api-" + d(64, URLSAFE),
    "aws": lambda d: "AK" + "IA" + d(16, BASE32),
    "aws-session": lambda d: "AS" + "IA" + d(16, BASE32),
    "google": lambda d: "AI" + "za" + d(35, URLSAFE),
    "googleoauth": lambda d: "ya" + "29." + d(100, URLSAFE),
    "google-client": lambda d: "GOC" + "SPX-" + d(28, URLSAFE),
    "azure": lambda d: d(3) + d(1, string.digits) + "Q" + "~" + d(31, WORD + "~._-") + "a",
    "github": lambda d: "gh" + "p_" + d(36),
    "github-oauth": lambda d: "gh" + "o_" + d(36),
    "github-fine": lambda d: "github" + "_pat_" + d(22) + "_" + d(59),
    "gitlab": lambda d: "gl" + "pat-" + d(20, URLSAFE[:-2]),
    "gitlab-deploy": lambda d: "gl" + "dt-" + d(20, URLSAFE[:-2]),
    "gitlab-runner": lambda d: "gl" + "rt-" + d(20, URLSAFE[:-2]),
    "slack": lambda d: "xo" + "xb-" + d(12, string.digits) + "-" + d(12, string.digits) + "-" + d(24),
    "slack-hook": lambda d: "https://hooks." + "slack.com/services/T" + d(9) + "/B" + d(9) + "/" + d(24),
    "discord": lambda d: "M" + d(23) + "." + d(6, URLSAFE[:-2]) + "." + d(38, URLSAFE[:-2]),
    "discord-hook": lambda d: "https://discord." + "com/api/webhooks/" + d(18, string.digits) + "/" + d(68, URLSAFE),
    "teams": lambda d: f"https://corp.webhook.{'office'}.com/webhookb2/{d(36, HEX)}@{d(36, HEX)}/Inc/{d(32, HEX)}/x",
    "telegram": lambda d: d(9, "123456789") + ":A" + "A" + d(33, URLSAFE),
    "pypi": lambda d: "py" + "pi-AgEIcHlwaS5vcmc" + d(80, URLSAFE),
    "npm": lambda d: "np" + "m_" + d(36),
    "docker": lambda d: "dckr" + "_pat_" + d(27, URLSAFE),
    "neptune": lambda d: "eyJhcGlfYWRk" + "cmVzcyI6" + d(120),
    "jwt": lambda d: "ey" + f"J{d(34)}.eyJ{d(80)}.{d(43, URLSAFE)}",
    "databricks": lambda d: "da" + "pi" + d(32, HEX),
    "replicate": lambda d: "r8" + "_" + d(37),
    "groq": lambda d: "gs" + "k_" + d(52),
    "xai": lambda d: "xa" + "i-" + d(80),
    "perplexity": lambda d: "pp" + "lx-" + d(48),
    "together": lambda d: "tg" + "p_v1_" + d(43, URLSAFE),
    "langsmith": lambda d: "lsv2" + "_pt_" + d(32, HEX) + "_" + d(10, HEX),
    "modal": lambda d: "a" + "k-" + d(22),
    "modal-secret": lambda d: "a" + "s-" + d(22),
    "runpod": lambda d: "rp" + "a_" + d(46, string.ascii_uppercase + string.digits),
    "stripe": lambda d: "sk" + "_live_" + d(24),
    "sendgrid": lambda d: "S" + "G." + d(22, URLSAFE) + "." + d(43, URLSAFE),
    "twilio": lambda d: "S" + "K" + d(32, HEX),
    "vault": lambda d: "hv" + "s." + d(24) + d(70, URLSAFE),
    "age": lambda d: "AGE-SECRET" + "-KEY-1" + d(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "digitalocean": lambda d: "do" + "p_v1_" + d(64, HEX),
    "grafana": lambda d: "gl" + "sa_" + d(32) + "_" + d(8, HEX),
    "kaggle-token": lambda d: "KG" + "AT_" + d(32, HEX),
    "alibaba": lambda d: "LT" + "AI5t" + d(18),
    "volcengine": lambda d: "AK" + "LT" + d(43),
    "tencent": lambda d: "AK" + "ID" + d(32),
    "atlassian": lambda d: "AT" + "ATT3xFfGF0" + d(170, URLSAFE) + "=" + d(8, HEX.upper()),
    "cerebras": lambda d: "cs" + "k-" + d(48, string.ascii_lowercase + string.digits),
    "crypt": lambda d: "$" + "6$" + d(16, WORD + "./") + "$" + d(86, WORD + "./"),
    "doppler": lambda d: "dp" + ".pt." + d(43),
    "fireworks": lambda d: "fw" + "_" + d(24),
    "fly": lambda d: "fm" + "2_" + d(120, BASE64),
    "jina": lambda d: "ji" + "na_" + d(60),
    "linear": lambda d: "lin" + "_api_" + d(40),
    "mailgun": lambda d: "ke" + "y-" + d(32, HEX),
    "notion": lambda d: "nt" + "n_" + d(46),
    "pinecone": lambda d: "pc" + "sk_" + d(6) + "_" + d(63),
    "postman": lambda d: "PM" + "AK-" + d(24, HEX) + "-" + d(34, HEX),
    "pulumi": lambda d: "pu" + "l-" + d(40, HEX),
    "sentry": lambda d: "sntr" + "ys_" + d(120, BASE64),
    "tailscale": lambda d: "ts" + "key-auth-" + d(12) + "CNTRL-" + d(32),
}

LINES = (
    "login(token={s!r})",
    "2026-03-04 02:43:49,101 INFO [rank3] auth: using {s} for upload",
    "export THE_VAR={s}",
    '  "env": {{"X_VALUE": "{s}", "WORLD_SIZE": "8"}},',
    "credential: {s}  # from vault",
    "environ({{'HOME': '/root', 'THE_TOKEN': '{s}', 'TERM': 'xterm'}})",
    '  File "train.py", line 31, in main\n    client = Client("{s}")\nRuntimeError: 401 for {s}',
    "srun --export=ALL,THE_TOKEN={s},NCCL_DEBUG=INFO python train.py",
    "docker run --gpus all -e THE_TOKEN={s} -e A=1 image:latest",
    "ValueError: Incorrect API key provided: {s}. You can find your key online.",
    "+ python train.py --some-token {s} --lr 1e-4",
    "curl -H 'Authorization: Bearer {s}' https://host/v1",
    "GET /v1/models?key={s}&x=1 HTTP/1.1",
    "Namespace(lr=0.1, hub_token='{s}', seed=1)",
    '[launcher]\ntoken = "{s}"\nranks = 8',
    "- name: SOME_TOKEN\n  value: {s}\n- name: B\n  value: '2'",
    "['python', 'train.py', '--hub-token', '{s}', '--epochs', '3']",
    '{{"msg": "{{\\"token\\": \\"{s}\\"}}"}}',
    "git clone https://oauth2:{s}@github.com/a/b.git",
    "{s}",
)

# Kinds that only their place tells: a line and the alphabet of the value.
PLACED: dict[str, tuple[Callable[[Dice], str], tuple[str, ...]]] = {
    "wandb-hex": (lambda d: d(40, HEX), (
        "export WANDB_API_KEY={s}", "wandb: logging in with {s}", "wandb login --relogin {s}", "WANDB_API_KEY: '{s}'",
        "machine api.wandb.ai\n  login user\n  password {s}", "wandb.login(key='{s}')")),
    "aws-secret": (lambda d: d(38, BASE64) + "a9", (
        "aws_secret_access_key = {s}", "AWS_SECRET_ACCESS_KEY={s}", '"SecretAccessKey": "{s}"',
        "boto3.client('s3', aws_secret_access_key='{s}')", "export AWS_SECRET_ACCESS_KEY='{s}'")),
    "azure-storage": (lambda d: d(86, BASE64) + "==", (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s};EndpointSuffix=core.windows.net",
        "AZURE_STORAGE_KEY={s}", "account_key: {s}")),
    "aws-pair": (lambda d: d(38, BASE64) + "a9", ("AK" "IAABCDEFGHIJ234567:{s}",)),
    "azure-account": (lambda d: d(76, BASE64) + "AS" "tA" + d(6, BASE64) + "==", ("AZURE_ACCOUNT_KEY={s}", "AccountKey={s};x=1")),
    "azure-sas": (lambda d: quote(d(43, BASE64) + "=", safe=""), (
        "https://a.blob.core.windows.net/c/b?sv=2022-11-02&se=2026-01-01&sr=b&sp=r&sig={s}",)),
    "presigned": (lambda d: d(64, HEX), (
        "GET https://b.s3.amazonaws.com/k?X-Amz-Date=20260101T000000Z&X-Amz-SignedHeaders=host&X-Amz-Signature={s}",
        "https://storage.googleapis.com/b/o?X-Goog-Expires=900&X-Goog-Signature={s}&x=1",
        "https://cdn-lfs.hf.co/repos/a/b?Expires=1&Signature={s}&Key-Pair-Id=K1")),
    "jupyter": (lambda d: d(48, HEX), ("http://localhost:8888/lab?token={s}",)),
    "password": (lambda d: d.password(), (
        "DB_PASSWORD={s}", "password: {s}", "'password': '{s}',", 'password = "{s}"', "user@host's password: {s}",
        "environ({{'HOME': '/r', 'PGPASSWORD': '{s}'}})", "mysql --password={s} db", "sshpass -p '{s}' ssh node1",
        "docker login -u bob -p {s} registry.io", "connect(host='h', user='u', passwd='{s}')",
        "<password>{s}</password>", "setenv DB_PASSWORD {s}", '("password", "{s}")', "MLFLOW_TRACKING_PASSWORD={s}",
        "- name: DB_PASSWORD\n  value: {s}", '{{"name": "DB_PASSWORD", "value": "{s}"}}', "openssl rsa -passin pass:{s}",
        "os.environ['SMTP_PASSWORD'] = '{s}'", "DatabaseError: login failed (uid=sa;pwd={s};)", "passphrase: '{s}'",
        "ssh_pass={s}", "export SMB_PASS={s}", "ANSIBLE_BECOME_PASS={s}", '{{"user": "bob", "pass": "{s}"}}', "u=bob pass={s}",
        "REDISCLI_AUTH={s}")),
    "uuid": (lambda d: "-".join(d(n, HEX) for n in (8, 4, 4, 4, 12)), (
        "MODELSCOPE_API_TOKEN=ms-{s}", "access_token: {s}", "HEROKU_API_KEY={s}")),
    "url": (lambda d: d.password().replace("%", "x").replace("^", "y"), (
        "postgresql://bob:{s}@10.0.0.1:5432/runs", "redis://:{s}@cache:6379/0", "pip install -i https://u:{s}@pypi.corp/s",
        "mongodb+srv://root:{s}@c0.mongodb.net", "https_proxy=http://me:{s}@proxy:3128", "amqp://guest:{s}@mq//")),
    "url-user": (lambda d: d(40), ("git clone https://{s}@git.corp/a/b.git", "https://{s}@o1.ingest.host/2")),
    "curl-user": (lambda d: d.password(), ("curl -u bob:{s} https://h/x", "curl --user 'bob:{s}' https://h/x")),
    "netrc": (lambda d: d.password(), (
        "machine api.host login user password {s}", "machine a\n\tlogin u\n\tpassword {s}", "default login a password {s}")),
    "header": (lambda d: d(40), (
        "X-API-Key: {s}", "'x-api-key': '{s}'", "Authorization: Token {s}", "-H 'PRIVATE-TOKEN: {s}'",
        "headers={{'Authorization': 'Bearer {s}'}}", "('authorization', 'Bearer {s}')", "api-key: {s}",
        "[(b'authorization', b'Bearer {s}')]", "sent bearer {s}", '"Authorization":"ApiKey {s}"', "X-Auth-Token: {s}",
        "X-Vault-Token: {s}")),
    "cookie": (lambda d: d(43, URLSAFE), (
        "Cookie: theme=dark; session={s}; x=1", "Set-Cookie: sid={s}; Path=/; HttpOnly", "'cookie': 'sessionid={s}'")),
    "basic": (lambda d: base64.b64encode(f"bob:{d.password()}{d(8)}".encode()).decode(), (
        "Authorization: Basic {s}", "'Authorization': 'Basic {s}'", "proxy-authorization: Basic {s}",
        '{{"auths": {{"nvcr.io": {{"auth": "{s}"}}}}}}', "sent basic {s}")),
    "kubeconfig": (lambda d: base64.b64encode(d(120).encode()).decode(), (
        "    client-key-data: {s}", "    token: {s}")),
    "comet": (lambda d: d(25), ("COMET_API_KEY={s}", "comet_ml.init(api_key='{s}')", "[comet]\napi_key={s}")),
    "clearml": (lambda d: d(50), ('    "secret_key" = "{s}"', "CLEARML_API_SECRET_KEY={s}", "CLEARML_API_ACCESS_KEY={s}")),
    "mistral": (lambda d: d(32), ("MISTRAL_API_KEY={s}", "mistral:\n  api_key: {s}")),
    "cohere": (lambda d: d(40), ("CO_API_KEY={s}", "cohere.Client(api_key='{s}')")),
    "vast": (lambda d: d(64, HEX), ("vastai set api-key {s}", "VAST_API_KEY={s}")),
    "lambda": (lambda d: "secret_" + d(20) + "_" + d(32, HEX) + "." + d(30), ("LAMBDA_API_KEY={s}", "lambda_api_key: {s}")),
    "kaggle": (lambda d: d(32, HEX), ('{{"username":"bob","key":"{s}"}}', "KAGGLE_KEY={s}")),
    "azure-openai": (lambda d: d(32, HEX), ("AZURE_OPENAI_API_KEY={s}", "api-key: {s}", "api_key='{s}'")),
    "client-secret": (lambda d: d(40), ("client_secret={s}", '"client_secret": "{s}"', "OAUTH_CLIENT_SECRET: {s}")),
    "flag": (lambda d: d(24), ("train.py --hub-token {s} --lr 1", "--api_key={s}", "x --wandb_key {s}", "--token='{s}'")),
}  # fmt: skip


def key_block(d: Dice, label: str) -> tuple[str, tuple[str, ...]]:
    """A private key as it stands in a file, and its lines."""
    lines = [d(64, BASE64) for _ in range(6)] + [d(30, BASE64) + "=="]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"]), tuple(lines)


def key_blocks(seed: int = 7) -> Iterator[Planted]:
    """Private keys in a file, in JSON, indented in YAML, with a log's prefix, and cut off."""
    d = Dice(seed)
    labels = ("RSA PRIVATE" " KEY", "OPENSSH PRIVATE" " KEY", "PRIVATE" " KEY", "EC PRIVATE" " KEY",
              "ENCRYPTED PRIVATE" " KEY", "PGP PRIVATE" " KEY BLOCK")  # fmt: skip
    for label in labels:
        block, lines = key_block(d, label)
        for way, text in (
            ("plain", f"key follows\n{block}\nstep 1 loss 2.0"),
            ("json", json.dumps({"type": "service_account", "private_key": block + "\n", "client_id": "1"})),
            ("yaml", "key: |\n" + "\n".join("    " + line for line in block.split("\n")) + "\nnext: 1"),
            ("prefixed", "\n".join("[rank0]: " + line for line in block.split("\n")) + "\nstep 2"),
            ("cut", block.rsplit("\n", 3)[0] + "\nstep 3 loss 1.0"),
            ("crlf", block.replace("\n", "\r\n") + "\r\nstep 4"),
        ):
            yield Planted(f"key-{label.split()[0].lower()}", text, tuple(x for x in lines if x in text), way)


def planted(seed: int = 4, each: int = 6) -> Iterator[Planted]:
    """Every kind: tokens in `each` of the lines, in turn, and the others in each of theirs."""
    d = Dice(seed)
    at = 0
    for kind, make in TOKENS.items():
        for _ in range(each):
            line, at = LINES[at % len(LINES)], at + 1
            if "://" in (secret := make(d)) and "://" in line:
                line = LINES[1]
            yield Planted(kind, _around(line.format(s=secret)), (secret,))
    for kind, (make, lines) in PLACED.items():
        for line in lines:
            secret = make(d)
            yield Planted(kind, _around(line.format(s=secret)), (secret,))
    yield from key_blocks()


def _around(text: str) -> str:
    return f"step 11 loss 2.31 lr 1e-4\n{text}\nstep 12 loss 2.30 lr 1e-4\n"


def disguised(seed: int = 5) -> Iterator[Planted]:
    """Tokens of every kind behind every disguise."""
    d = Dice(seed)
    for kind, make in TOKENS.items():
        for way, disguise in DISGUISES.items():
            if "://" in (secret := make(d)) and way in ("shell", "python"):
                continue
            if kind == "discord" and way.startswith("base64"):
                continue  # nothing that all of them begin with
            text, halves = disguise(secret, d)
            yield Planted(kind, _around(text), tuple(h for h in halves if len(h) > 5), way)


def disguised_values(seed: int = 6) -> Iterator[Planted]:
    """Values that only their place tells, in their line behind a disguise of the line or of the value."""
    d = Dice(seed)
    for kind, (make, lines) in PLACED.items():
        for line in lines:
            for way, hide in IN_LINE.items():
                secret = make(d)
                if "wrapped" in way and (len(secret) < 24 or "{{" in line):
                    continue
                shown = hide(secret, d)
                parts = [part for part in shown.replace("\\\n", "\n").split("\n") if len(part) > 5]
                yield Planted(kind, _around(line.format(s=shown)), (secret, *parts), way)
            secret = make(d)
            text = json.dumps({"msg": json.dumps({"line": line.format(s=secret)})})
            yield Planted(kind, _around(text), (secret,), "json-twice")


def _halves(secret: str, d: Dice) -> tuple[str, str]:
    at = d.random.randrange(len(secret) // 3 + 1, len(secret) * 2 // 3 + 2)
    return secret[:at], secret[at:]


def _between(before: str, mark: str, after: str) -> Callable[[str, Dice], tuple[str, tuple[str, ...]]]:
    """The secret broken in two by a mark."""

    def disguise(secret: str, d: Dice) -> tuple[str, tuple[str, ...]]:
        one, two = _halves(secret, d)
        return before + one + mark + two + after, (secret, two)

    return disguise


def _as(rewrite: Callable[[str], str]) -> Callable[[str, Dice], tuple[str, tuple[str, ...]]]:
    def disguise(secret: str, d: Dice) -> tuple[str, tuple[str, ...]]:
        hidden = rewrite(secret)
        return f"sent {hidden} to host", (secret, hidden)

    return disguise


def _spread(mark: str, every: int) -> Callable[[str], str]:
    return lambda s: mark.join(s[i : i + every] for i in range(0, len(s), every))


DISGUISES: dict[str, Callable[[str, Dice], tuple[str, tuple[str, ...]]]] = {
    "wrapped": _between("THE_TOKEN=", "\n", "\nstep 3"),
    "wrapped-indented": _between("    client = Client(token=", "\n        ", ")"),
    "wrapped-crlf": _between("key ", "\r\n", " end"),
    "wrapped-prefix": _between("[rank0]: using ", "\n[rank0]: ", " now"),
    "continued": _between("python train.py --hub-token ", "\\\n  ", " --lr 1e-4"),
    "rich": _between("│ token = '", "  │\n│ ", "'   │"),
    "python": _between("('", "'\n '", "')"),
    "shell": _between('login "', "\"'", "'"),
    "colour-around": _between("key \x1b[32m", "", "\x1b[0m end"),
    "colour-within": _between("key ", "\x1b[1;31m", "\x1b[0m end"),
    "colour-printed": _between("key ", "\\x1b[31m", "\\x1b[0m end"),
    "zero-width": _as(_spread("\u200b", 7)),
    "bidi": _as(_spread("\u202e\u202c", 9)),
    "soft-hyphen": _as(_spread("\u00ad", 8)),
    "url": _as(lambda s: "token%3D" + quote(s, safe="").replace("-", "%2D").replace("_", "%5F")),
    "url-twice": _as(lambda s: quote(quote(s, safe="").replace("_", "%5F").replace("-", "%2D"), safe="")),
    "json-escaped": _as(lambda s: s.replace("-", "\\u002d").replace("_", "\\u005f").replace(".", "\\u002e")),
    "hex-escaped": _as(lambda s: s.replace("-", "\\x2d").replace("_", "\\x5f")),
    "html": _as(lambda s: s.replace("-", "&#45;").replace("_", "&#95;").replace(".", "&#x2e;")),
    "after-newline-escape": _as(lambda s: "repr \\n" + s + "\\n"),
    "base64": _as(lambda s: base64.b64encode(s.encode()).decode()),
    "base64-user": _as(lambda s: base64.b64encode(f"user:{s}".encode()).decode()),
    "base64-urlsafe": _as(lambda s: base64.urlsafe_b64encode(f"k={s}\n".encode()).decode().rstrip("=")),
    "base64-json": _as(lambda s: "data:" + base64.b64encode(json.dumps({"t": s}).encode()).decode()),
}

IN_LINE: dict[str, Callable[[str, Dice], str]] = {
    "wrapped": lambda s, d: "\n".join(_halves(s, d)),
    "wrapped-continued": lambda s, d: "\\\n".join(_halves(s, d)),
    "colour-within": lambda s, d: "\x1b[33m".join(_halves(s, d)),
    "colour-around": lambda s, d: f"\x1b[1m{s}\x1b[0m",
    "zero-width": lambda s, d: "\u200b".join(_halves(s, d)),
    "letters-escaped": lambda s, d: "".join(f"\\u{ord(c):04x}" if i % 5 == 2 else c for i, c in enumerate(s)),
}
