"""`doctor salvage refetch` and `hostfile`: what is damaged, the command that gets it again, a list without nodes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub._local_folder import write_download_metadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from traindoctor.agent.repair.salvage import rollback as hosts

REVISION = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = save({"w": np.arange(1000, dtype=np.float32)})


def hub(root: Path, repo: str, file: str, content: bytes, held: bytes | None = None) -> Path:
    """A file as the hub's cache keeps it: a link to a blob that bears its digest; `held` is what lies there."""
    folder = root / repo
    blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
    link = folder / "snapshots" / REVISION / file
    blob.parent.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if held is not None:
        blob.write_bytes(held)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link


def told(doctor, *arguments: object) -> list[dict]:
    done = doctor("salvage", "refetch", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["files"]


def test_the_hub_cache(tmp_path, doctor, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cut = hub(tmp_path / "hub", "models--org--some-model", "sub dir/model.safetensors", WEIGHTS, WEIGHTS[:2000])
    [one] = told(doctor, cut)
    assert "2000" in one["wrong"] or "truncated" in one["wrong"] or "ends" in one["wrong"], one
    command = f"hf download org/some-model 'sub dir/model.safetensors' --revision {REVISION} --force-download"
    assert one["commands"] == [command] and one["expected"] == f"SHA-256 {hashlib.sha256(WEIGHTS).hexdigest()}"
    by_blob = told(doctor, cut.resolve())[0]
    assert by_blob["commands"] == [command]


def test_a_flipped_bit_shows_by_its_digest(tmp_path, doctor):
    data = bytearray(WEIGHTS)
    data[-5] ^= 1
    path = hub(tmp_path / "other", "datasets--org--set", "weights.safetensors", WEIGHTS, bytes(data))
    [one] = told(doctor, path)
    assert "other bytes" in one["wrong"]
    assert "--repo-type dataset" in one["commands"][0] and f"--cache-dir {tmp_path / 'other'}" in one["commands"][0]
    assert told(doctor, path, "--quick")[0]["wrong"] == ""
    whole = hub(tmp_path / "third", "models--gpt2", "model.safetensors", WEIGHTS, WEIGHTS)
    assert told(doctor, whole)[0]["wrong"] == "" and "hf download gpt2 " in told(doctor, whole)[0]["commands"][0]


def test_a_folder_is_looked_through(tmp_path, doctor):
    hub(tmp_path / "hub", "models--org--m", "a.safetensors", WEIGHTS, WEIGHTS)
    hub(tmp_path / "hub", "models--org--m", "b.safetensors", WEIGHTS + b" ", None)
    (tmp_path / "hub/models--org--m/blobs/aa.incomplete").write_bytes(b"x")
    found = told(doctor, tmp_path / "hub")
    assert {Path(f["path"]).name for f in found} == {"b.safetensors", "aa.incomplete"}
    assert any("which is not there" in f["wrong"] for f in found) and any("never ended" in f["wrong"] for f in found)
    (tmp_path / "sound").mkdir()
    (tmp_path / "sound" / "w.safetensors").write_bytes(WEIGHTS)
    assert "nothing damaged" in doctor("salvage", "refetch", tmp_path / "sound").stdout


def test_a_folder_that_was_downloaded_into(tmp_path, doctor):
    """The note beside it is written by the hub's own library."""
    local = tmp_path / "my model"
    (local / "part").mkdir(parents=True)
    path = local / "part" / "model.safetensors"
    path.write_bytes(WEIGHTS[:-1])
    write_download_metadata(local, "part/model.safetensors", REVISION, hashlib.sha256(WEIGHTS).hexdigest())
    [one] = told(doctor, path)
    assert one["wrong"] and "not recorded" in one["origins"][0] and "<repo>" in one["commands"][0]
    (local / "config.json").write_text('{"_name_or_path": "org/base"}')
    [command] = told(doctor, path)[0]["commands"]
    assert shlex.split(command) == [
        "hf", "download", "org/base", "part/model.safetensors", "--revision", REVISION, "--local-dir", str(local),
        "--force-download",
    ]  # fmt: skip
    (local / "config.json").write_text('{"_name_or_path": "org/$(touch x)"}')
    assert "<repo>" in told(doctor, path)[0]["commands"][0]


def test_git_lfs(tmp_path, doctor):
    clone = tmp_path / "clone"
    (clone / "data").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", clone], check=True)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 123456\n"
    (clone / "data" / "shard-0.bin").write_text(pointer)
    [one] = told(doctor, clone / "data" / "shard-0.bin")
    assert "pointer" in one["wrong"] and one["expected"] == f"123456 bytes, SHA-256 {'ab' * 32}"
    assert one["commands"] == [f"git -C {clone} lfs pull --include=data/shard-0.bin"]
    (clone / ".gitattributes").write_text("*.safetensors filter=lfs diff=lfs merge=lfs -text\n")
    (clone / "w.safetensors").write_bytes(WEIGHTS[:500])
    [one] = told(doctor, clone / "w.safetensors")
    assert one["commands"][0].startswith("mv ") and one["commands"][0].endswith("--include=w.safetensors")
    (tmp_path / "lost.bin").write_text(pointer)
    assert told(doctor, tmp_path / "lost.bin")[0]["commands"] == []


def damaged(folder: Path) -> dict[str, str]:
    """Damaged files of each kind by their names, with a word of what is said."""
    shard = io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as tar:
        member = tarfile.TarInfo("000.txt")
        member.size = 5000
        tar.addfile(member, io.BytesIO(b"x" * 5000))
    table = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(1000))}), table)
    files = {
        "page.parquet": (b"<!DOCTYPE html><html>login</html>", "web page"),
        "denied.bin": (b'{"error":"Repository not found"}', "refusal"),
        "s3.safetensors": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "web page"),
        "empty.jsonl": (b"", "empty"), "cut.tar": (shard.getvalue()[:3000], "tar"),
        "cut.parquet": (table.getvalue()[:1500], "PAR1"),
        "cut.jsonl.gz": (gzip.compress(os.urandom(5000))[:3000], "cut off"), "zeros.safetensors": (bytes(4096), ""),
    }  # fmt: skip
    for name, (content, _) in files.items():
        (folder / name).write_bytes(content)
    (folder / "sound.tar").write_bytes(shard.getvalue())
    (folder / "sound.parquet").write_bytes(table.getvalue())
    (folder / "notes.html").write_text("<html></html>")
    return {name: said for name, (_, said) in files.items()}


def test_every_kind_of_damage(tmp_path, doctor):
    said = damaged(tmp_path)
    found = {Path(f["path"]).name: f["wrong"] for f in told(doctor, tmp_path)}
    assert found.keys() == said.keys()
    assert all(said[name] in found[name] for name in said), found
    assert told(doctor, tmp_path / "gone")[0]["wrong"] == "is not there"


def test_addresses_in_the_configs_of_a_run(tmp_path, doctor):
    run, data = tmp_path / "run", tmp_path / "data dir"
    (run).mkdir()
    (data / "web").mkdir(parents=True)
    (run / "config.yaml").write_text(
        'urls: "pipe:aws s3 cp s3://bucket/set/shard-{000000..000127}.tar -"\nval: gs://b/val.tar\n'
        "tokens: https://example.org/files/tokens.bin\nraw: hf://datasets/org/set@main/raw/part.parquet\n"
    )
    (run / "launch.sh").write_text("#!/bin/bash\nrsync -av --progress store:/pool/c4/ /scratch/c4\npython train.py\n")

    def commands(path: Path) -> list[str]:
        return told(doctor, path, "--run", run)[0]["commands"]

    shard = data / "web" / "shard-000042.tar"
    assert commands(shard) == [f"aws s3 cp s3://bucket/set/shard-000042.tar '{shard}'"]
    assert commands(data / "shard-000128.tar") == commands(data / "shard-7.tar") == []
    assert commands(data / "val.tar") == [f"gcloud storage cp gs://b/val.tar '{data / 'val.tar'}'"]
    assert commands(data / "tokens.bin") == [
        f"curl -fL --retry 5 -o '{data / 'tokens.bin'}' https://example.org/files/tokens.bin"
    ]
    assert commands(data / "part.parquet") == [
        "hf download org/set raw/part.parquet --repo-type dataset --revision main --force-download"
    ]
    target = Path("/scratch/c4/en/0001.json.gz")
    assert commands(target) == [f"rsync -a --checksum store:/pool/c4/en/0001.json.gz {target}"]
    unknown = doctor("salvage", "refetch", data / "unknown.tar")
    assert "where it came from is not known" in unknown.stdout


@pytest.mark.parametrize("name", ["a b.bin", "-rf.bin", "it's `id`.bin", "new\nline.bin", "$(id).bin"])
def test_names_of_every_kind_are_one_word(tmp_path, doctor, name):
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / ".git").mkdir()
    (clone / name).write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 9\n")
    done = doctor("salvage", "refetch", clone)
    command = next(line.strip() for line in done.stdout.splitlines() if "lfs pull" in line)
    assert command.isprintable()
    argv = subprocess.run(
        ["bash", "-c", f"git() {{ printf '%s\\0' \"$@\"; }}; {command}"], capture_output=True, check=True
    )
    words = argv.stdout.decode().split("\0")
    assert len(words) == 6 and words[4].removeprefix("--include=").removeprefix("./") == name


HOSTS = "# our nodes\nn1 slots=8\n\tn2  slots=8 max_slots=8\r\nn3:4\n\nn10 slots=8"


def test_a_host_file(tmp_path, doctor):
    old, new = tmp_path / "hosts", tmp_path / "new hosts"
    old.write_text(HOSTS, newline="")
    done = doctor("salvage", "hostfile", old, "--without", "n1,n3", "-o", new)
    assert done.returncode == 0, done.stderr
    assert new.read_bytes() == b"# our nodes\n\tn2  slots=8 max_slots=8\r\n\nn10 slots=8"
    assert "2 nodes left, 16 slots" in done.stdout and f"--hostfile '{new}'" in done.stdout
    assert "--exclude=n1,n3" in done.stdout and old.read_text() == HOSTS.replace("\r\n", "\n")
    cases = [("n4", "is not in"), ("n1,n2,n3,n10", "no node"), (",", "names no node")]
    for names, said in cases:
        wrong = doctor("salvage", "hostfile", old, "--without", names, "-o", tmp_path / "x")
        assert wrong.returncode == 2 and said in wrong.stderr and not (tmp_path / "x").exists()
    assert doctor("salvage", "hostfile", old, "--without", "n1", "-o", new).returncode == 2


def test_a_list_of_nodes_as_slurm_writes_it(tmp_path, doctor):
    old, new = tmp_path / "nodes", tmp_path / "new"
    old.write_text("gpu[001-003,07],login1,cpu[1-2]-ib\n")
    assert doctor("salvage", "hostfile", old, "--without", "gpu002", "-o", new).returncode == 0
    assert new.read_text() == "gpu001,gpu003,gpu07,login1,cpu[1-2]-ib\n"
    (tmp_path / "many").write_text("n[1-99999999999]\n")
    wrong = doctor("salvage", "hostfile", tmp_path / "many", "--without", "n1", "-o", tmp_path / "x")
    assert wrong.returncode == 2 and "more than" in wrong.stderr


NODE = st.from_regex(r"[a-z]{1,3}[0-9]{1,2}", fullmatch=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NODE, min_size=2, max_size=8, unique=True), st.data())
def test_lines_of_other_nodes_are_the_same_bytes(tmp_path, names, data):
    gone = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=len(names) - 1))
    rest = st.sampled_from([b"", b" slots=8", b":8", b"\tslots = 4 # it is slow", b" \xff"])
    lines = [n.encode() + data.draw(rest) + data.draw(st.sampled_from([b"\n", b"\r\n"])) for n in names]
    (tmp_path / "hosts").write_bytes(b"".join(lines))
    (tmp_path / "new").unlink(missing_ok=True)
    done = hosts.without(tmp_path / "hosts", sorted(gone), tmp_path / "new")
    kept = b"".join(line for name, line in zip(names, lines, strict=True) if name not in gone)
    assert (tmp_path / "new").read_bytes() == kept and set(done.left_out) == gone
