"""Files whose settings nobody reads again: records that a run wrote, and files of other programs."""

from __future__ import annotations

import re

HEAD = 65_536  # characters that are looked at
_RECORD_FOLDER = re.compile(
    r"(?:^|/)(?:wandb|mlruns|mlflow|\.hydra|lightning_logs|ray_results|tb|tensorboard|tb_logs|\.neptune|\.comet\w*"
    r"|checkpoint-\d+|global_step_?\d+|iter_\d+|step[-_]?\d+|epoch[-_=]?\d+\S*"
    r"|(?:run|offline-run)-\d{8}_\d{6}-\w+)/"
)
_RECORD_NAME = re.compile(
    r"(?:^|/)(?:trainer_state|training_args|cmd[-_]args|\w*_results|wandb-\w+|\w*metrics\w*"
    r"|\w*resolved\w*|\w*snapshot\w*|adapter_config|torchtune_config|llamaboard_config"
    r"|\S*\.index)\.(?:json|ya?ml)\Z|(?:^|/)args\.json\Z|(?:^|/)(?:version_\d+|tb\w*|logs)/(?:\S*/)?hparams\.ya?ml\Z"
    r"|(?:^|/)\S+\.(?:lock|log|out|err)\Z"
    r"|(?:^|/)(?:package-lock\.json|conda-lock\.ya?ml|pnpm-lock\.yaml|npm-shrinkwrap\.json)\Z"
)
_RECORD_TEXT = re.compile(
    r"""(?mx) "log_history"\s*: | "best_model_checkpoint"\s*: | "_n_gpu"\s*: | "__cached__setup_devices"\s*:
    | ^_wandb\s*: | ^wandb_version\s*: | ^artifact_uri\s*: | "peft_type"\s*: | !!python/object(?::|/new:|/apply:)
    | ^_n_gpu\s*: | ^(?:\#\s*)?(?:this\ file\ (?:is|was)\ )?(?:auto(?:matically)?[- ]?)generated\b
    """
)
# Lightning writes its record without a comment; a file of this name that a person wrote has comments or tags.
_HPARAMS = re.compile(r"(?:^|/)hparams\.ya?ml\Z")
_WRITTEN_BY_HAND = re.compile(r"#|!(?:new|ref|name|apply|include|copy)\b")
_KINDS = tuple(
    (kind, re.compile(name), tuple(map(re.compile, texts)))
    for kind, name, *texts in (
        ("a Kubernetes manifest", r"\.(?:ya?ml|json)\Z", r"(?m)^\s*\"?apiVersion\"?\s*:", r"(?m)^\s*\"?kind\"?\s*:"),
        ("a Kubernetes manifest", r"\.ya?ml\Z", r"(?m)^spec\s*:", r"(?m)^\s+containers\s*:"),
        ("a Compose file", r"(?:^|/)(?:docker-)?compose[\w.\-]*\.ya?ml\Z"),
        ("a Compose file", r"\.ya?ml\Z", r"(?m)^services\s*:", r"(?m)^\s+(?:image|build)\s*:"),
        ("a workflow of a CI service", r"(?:^|/)\.(?:github|circleci)/"),
        ("a workflow of a CI service", r"(?:^|/)(?:\.gitlab-ci|azure-pipelines)\S*\.ya?ml\Z"),
        ("a workflow of a CI service", r"\.ya?ml\Z", r"(?m)^[\"']?on[\"']?\s*:", r"(?m)^jobs\s*:"),
        ("a task of a cloud launcher", r"\.ya?ml\Z", r"(?m)^(?:run|setup|command|entrypoint)\s*:\s*[|>]|^commands\s*:"),
        ("a manifest of packages", r"(?:^|/)(?:package|composer|tsconfig|jsconfig|deno)\.json\Z"),
        ("a manifest of packages", r"(?:^|/)(?:(?:pyproject|Cargo|uv|ruff)\.toml|Pipfile)\Z"),
        ("a manifest of packages", r"(?:^|/)(?:setup\.cfg|(?:tox|pytest|mypy)\.ini|\.flake8|\.coveragerc)\Z"),
        ("a manifest of packages", r"\.ya?ml\Z", r"(?m)^(?:channels|dependencies|repos)\s*:\s*(?:\n\s*-|\[)"),
        ("a configuration of an editor", r"(?:^|/)(?:\.vscode|\.idea|\.devcontainer)/"),
        (
            "a file of the tokenizer or the processor",
            r"(?:^|/)(?:tokenizer\w*|vocab|merges|special_tokens_map|added_tokens|chat_template|preprocessor_config"
            r"|processor_config|\w*_processor_config)\.json\Z",
        ),
        ("the generation defaults of a model", r"(?:^|/)generation_config\.json\Z"),
        ("a description of data", r"(?:^|/)(?:dataset_infos?|dataset_dict|state|data(?:set)?_card)\.(?:json|yaml)\Z"),
        ("a file that starts a program", r"\.json\Z", r"\"(?:cmd|command|argv|entrypoint|args)\"\s*:\s*[\[\"]"),
    )
)  # fmt: skip


def is_record(name: str, head: str) -> bool:
    """Whether a run wrote the file to remember what it did: a change of it has no effect on the next launch.

    Args:
        name: the file's path inside the run.
        head: the beginning of its text.
    """
    path = name.replace("\\", "/")
    if _RECORD_FOLDER.search(path) and not path.endswith((".py", ".sh")):
        return True
    if _HPARAMS.search(path) and not _WRITTEN_BY_HAND.search(head[:HEAD]):
        return True
    return bool(_RECORD_NAME.search(path) or (not path.endswith(".py") and _RECORD_TEXT.search(head[:HEAD])))


def why_not(name: str, head: str, given: bool = False) -> str:
    """Why no setting is to be written into a file, in words; empty where nothing speaks against it.

    Args:
        given: a launch hands it to the training, so that its name makes no record of it; its text still may.
    """
    if is_record("settings" if given else name, head):
        return "a record that the run wrote: the next launch does not read it"
    path = name.replace("\\", "/")
    for kind, by_name, texts in _KINDS:
        if by_name.search(path) and all(text.search(head[:HEAD]) for text in texts):
            return f"{kind}, not a file of training settings"
    return ""
