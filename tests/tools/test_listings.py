"""Listings of checkpoint folders in the forms people paste them, whole ones, odd ones, and texts that are none."""

from __future__ import annotations

from pathlib import Path

from traindoctor.agent.reading.run.folder_listings import listed_files
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.log_tools import check_listings


def told(tmp_path: Path, **files: str) -> dict[str, list[str]]:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    result: dict[str, list[str]] = {}
    for e in check_listings(Workspace([tmp_path])).evidence:
        line = (tmp_path / str(e.file)).read_text().split("\n")[(e.line or 1) - 1]
        assert e.text == line
        result.setdefault(e.key.removeprefix("listing."), []).append(str(e.value))
    return result


def ranks(numbers: range | list[int], name: str = "rng_state_{}.pth") -> str:
    return "".join(name.format(n) + "\n" for n in numbers)


def test_a_rank_is_left_out_of_a_row(tmp_path: Path):
    found = told(tmp_path, ls__txt="$ ls out/checkpoint-500\n" + ranks([0, 1, 2, 4, 5, 6, 7]))
    assert found == {"missing_member": ["rng_state_3.pth: not in out/checkpoint-500"]}


def test_a_whole_row_is_clean(tmp_path: Path):
    assert told(tmp_path, ls__txt="$ ls out/checkpoint-500\n" + ranks(range(8))) == {}
    assert check_listings(Workspace([tmp_path])).outcome == "clean"


def test_shards_against_the_number_in_their_names(tmp_path: Path):
    found = told(tmp_path, listing__txt="$ ls -l m\n" + "".join(
        f"-rw-r--r-- 1 u g 4976698672 Jun 24 10:02 model-0000{n}-of-00004.safetensors\n" for n in (1, 2, 4)
    ))  # fmt: skip
    assert found == {"missing_member": ["model-00003-of-00004.safetensors: not in m"]}


def test_objects_of_a_bucket(tmp_path: Path):
    rows = [f"2023-11-15 19:15:{46 + n} 2495601003 __{n}_0.distcp" for n in range(12) if n not in (1, 7)]
    found = told(tmp_path, s3__txt="\n".join(rows) + "\n")
    assert found["missing_member"] == ["__1_0.distcp, __7_0.distcp: not in the listing"]


def test_the_missing_rank_lies_in_another_folder(tmp_path: Path):
    rows = [f"runs/{'a' if n != 2 else 'b'}/optim/dp_rank_{n}.pt" for n in range(6)]
    found = told(tmp_path, find__txt="$ find runs -name '*.pt'\n" + "\n".join(rows) + "\n")
    assert found["member_elsewhere"] == ["dp_rank_2.pt lies in runs/b/optim"]


def test_files_that_are_short(tmp_path: Path):
    found = told(
        tmp_path,
        ls__txt="$ ls -l s1 s2 s3\ns1:\n-rw-r--r-- 1 u g 900000000 Jun 24 10:02 pytorch_model.bin\n"
        "-rw-r--r-- 1 u g 1000 Jun 24 10:02 scheduler.pt\n"
        "s2:\n-rw-r--r-- 1 u g 900000010 Jun 24 10:02 pytorch_model.bin\n"
        "s3:\n-rw-r--r-- 1 u g 12000000 Jun 24 10:02 pytorch_model.bin\n-rw-r--r-- 1 u g 0 Jun 24 10:02 model.safetensors\n",
    )
    assert found["short_file"] == [
        "s3/model.safetensors has 0 bytes",
        "s3/pytorch_model.bin has 12000000 bytes, elsewhere pytorch_model.bin has 900000005",
    ]


def test_what_the_log_asks_for(tmp_path: Path):
    (tmp_path / "train.log").write_text(
        "FileNotFoundError: [Errno 2] No such file or directory: '/c/actor/optim_world_size_8_rank_5.pt'\n"
        "FileNotFoundError: No such file or directory: /c/step_2/weights.safetensors\n"
    )
    found = told(
        tmp_path,
        ls__txt="$ ls /c/actor\n" + ranks(range(16), "optim_world_size_16_rank_{}.pt"),
        find__txt="$ find /c/step_2 -type f\n/c/step_2/inner/weights.safetensors\n/c/step_2/inner/config.json\n",
    )
    assert found["other_world_size"] == ["asked for world_size_8, there is world_size_16"]
    assert found["wanted_elsewhere"] == [
        "weights.safetensors was looked for in /c/step_2, it lies in /c/step_2/inner"
    ]  # fmt: skip


def test_texts_that_are_no_listings(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("we saved model-00001-of-00004.safetensors\nand /c/rank_3.pt\n")
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nsaving out/checkpoint-5/rank_0.pt\n" * 5)
    ws = Workspace([tmp_path])
    assert listed_files(ws) == [] and check_listings(ws).outcome == "not_applicable"


def test_steps_are_no_row(tmp_path: Path):
    rows = "".join(f"out/step_{n}/model.safetensors\n" for n in (100, 200, 900))
    assert told(tmp_path, find__txt="$ find out\n" + rows) == {}


def test_damaged_texts(tmp_path: Path):
    (tmp_path / "ls.txt").write_bytes(
        b"$ ls x\n\xff\xfe rank_0.pt\nrank_1.pt\n\0\n" + b"-rw-r--r-- 1 u g 99999999999999999999 x\n"
    )
    assert check_listings(Workspace([tmp_path])).outcome in ("clean", "not_applicable")


def test_sizes_with_grouped_digits_and_endless_ones(tmp_path: Path):
    sizes = ("1.234.567", "1,234,567", "1,5G", "9" * 400, "1.2.3")
    rows = "".join(f"-rw-r--r-- 1 u g {s} Jun 24 10:02 part_{n}.pt\n" for n, s in enumerate(sizes))
    (tmp_path / "ls.txt").write_text("$ ls -l m\n" + rows)
    found = [e.size for e in listed_files(Workspace([tmp_path]))]
    assert found == [1234567, 1234567, 3 << 29, None, None]


def test_prose_that_begins_like_a_command(tmp_path: Path):
    (tmp_path / "notes.txt").write_text(
        "find attached what we know\nthe run saved\nout/checkpoint-5/rank_0.pt\nout/checkpoint-5/rank_1.pt\nand died\n"
    )
    (tmp_path / "more.txt").write_text("tree models were worse\nand we kept\nmodel.bin\n")
    assert listed_files(Workspace([tmp_path])) == []


def test_commands_without_a_prompt(tmp_path: Path):
    (tmp_path / "a.txt").write_text("ls out\nmodel.bin rank_0.pt\n")
    (tmp_path / "b.txt").write_text("ls -l out\ntotal 8\n-rw-r--r-- 1 u g 10 Jun 24 10:02 scheduler.pt\n")
    found = [e.path for e in listed_files(Workspace([tmp_path]))]
    assert found == ["out/model.bin", "out/rank_0.pt", "out/scheduler.pt"]


def test_texts_that_are_too_long_are_told(tmp_path: Path):
    told(tmp_path, ls__txt="$ ls out\n" + ranks(range(8)), long__txt="a line of words\n" * 70_000)
    assert "1 longer text(s) not searched" in check_listings(Workspace([tmp_path])).summary


def test_a_pipe_in_place_of_a_file(tmp_path: Path):
    rows = ["-rw-r--r-- 1 u g 91973 Jun 24 10:02 part-0001.pt", "prw-r--r-- 1 u g     0 Jun 24 10:02 part-0002.pt",
            "srwxr-xr-x 1 u g 0 Jun 24 10:02 loader.sock.json"]  # fmt: skip
    found = told(tmp_path, ls__txt="$ ls -l shards\n" + "\n".join(rows) + "\n")
    assert [v.partition(":")[0] for v in found["no_plain_file"]] == [
        "shards/part-0002.pt is a named pipe", "shards/loader.sock.json is a socket"]  # fmt: skip
    assert "short_file" not in found


def test_an_adapter_file_without_tensors(tmp_path: Path):
    listing = "$ ls -l lora\n-rw-r--r-- 1 u u {} Apr 13 09:11 adapter_model.{}\n"
    assert "empty_adapter" in told(tmp_path, ls__txt=listing.format(443, "bin"))
    assert "empty_adapter" in told(tmp_path, ls__txt=listing.format(896, "safetensors"))
    for size in (134, 16_790_000):  # what git leaves in place of a file; a whole one
        assert "empty_adapter" not in told(tmp_path, ls__txt=listing.format(size, "safetensors"))
