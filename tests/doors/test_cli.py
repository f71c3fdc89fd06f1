"""The command line as a user meets it: exit codes, streams, forms, and one line for a mistake."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run import workspace

Doctor = Callable[..., subprocess.CompletedProcess[str]]
DEMO = Path(__file__).resolve().parent.parent.parent / "evals" / "demo" / "files"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run that ends in an exception."""
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [f"step {n} loss {2.5 - n / 100:.4f} grad_norm 0.5" for n in range(1, 40)]
    lines += [
        "Traceback (most recent call last):",
        '  File "train.py", line 10, in <module>',
        "    loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB of which 1.06 GiB is free.",
    ]
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return folder


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.startswith("doctor: ") and "Traceback" not in text


def test_help_and_version_load_nothing_heavy() -> None:
    """One after the other in one process, which tells after each what is loaded."""
    heavy = ["langgraph", "chromadb", "torch", "openai", "numpy", "yaml", "textual", "onnxruntime"]
    asked = [["--help"], ["-h"], ["--version"], ["ask", "--help"], ["eval", "--help"]]
    code = (
        f"import sys; from traindoctor.agent.doors.cli import main\nfor words in {asked!r}:\n  assert main(words) == 0\n"
        f"  assert not [m for m in {heavy!r} if m in sys.modules], words"  # pydantic may come with typer itself
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("Usage: ") == 4


def test_the_installed_command_is_this_one(process: Doctor) -> None:
    done = process("--version")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("doctor 0.")
    assert "Traceback" not in process("--show-completion").stderr


@pytest.mark.parametrize(("arguments", "code", "says"), [
    (["aks"], 2, "No such command 'aks'. Did you mean 'ask'?"),
    (["ask", "why?", "--rum", "x"], 2, "--run"),
    (["ask", "why?", "--run", "/no/such/place"], 2, "no such path: /no/such/place"),
    (["ask", "why?", "--good", "/no/such/place"], 2, "no such path: /no/such/place"),
    (["ask", "why?", "--run", "-", "--run", "-"], 2, "standard input can be read once"),
    (["ask", "why?", "--json", "--markdown"], 2, "exclude each other"),
    (["ask", "why?", "--allow", "everything"], 2, "everything"),
    (["ask"], 2, "Missing argument 'QUESTION'. Type: doctor ask QUESTION; --help"),
    (["run"], 2, "Type: doctor run [--] COMMAND...; --help"),
    (["feedback", "last", "loss.bad_batch", "x"], 2, "Type: doctor feedback REPORT [ID]; --help"),
    (["sessions", "show", "nope"], 2, "no session 'nope'"),
    (["playbook", "show", "nope"], 2, "no playbook 'nope'"),
    (["playbook", "check", "/no/such/place"], 2, "no such folder"),
    (["tool", "no-such-tool"], 2, "No such command 'no-such-tool'. `doctor tool --help` lists them."),
    (["eval", "/no/such/place"], 2, "no such path"),
    (["index", "add", "/no/such/file.md"], 2, "no such file"),
    (["index", "remove", "nope.md"], 2, "nope.md"),
])  # fmt: skip
def test_a_mistake_is_one_line_on_stderr(doctor: Doctor, arguments: list[str], code: int, says: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == code and done.stdout == ""
    assert one_line(done.stderr), done.stderr
    assert says in done.stderr


def test_nothing_readable_is_exit_code_3(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = doctor("ask", "why?", "--run", tmp_path / "empty")
    assert (done.returncode, done.stdout) == (3, "") and one_line(done.stderr) and "looked for" in done.stderr


def test_ask_answers_on_stdout_and_is_kept(doctor: Doctor, run: Path) -> None:
    done = doctor("ask", "Why did it run out of memory?", "--run", run, "--json", "--offline")
    assert done.returncode == 0, done.stderr
    report = Report.model_validate_json(done.stdout)
    assert report.question == "Why did it run out of memory?" and report.runs[0].root == str(run)
    assert sorted(p.name for p in run.iterdir()) == ["train.log"]  # nothing was written into the run
    listed = doctor("sessions", "--json")
    assert [s["id"] for s in json.loads(listed.stdout)] == [report.session]
    again = doctor("sessions", "show", report.session, "--json")
    assert Report.model_validate_json(again.stdout) == report and report.session in doctor("sessions").stdout


def test_forms_of_the_answer(doctor: Doctor, run: Path) -> None:
    page = doctor("ask", "Why?", "--run", run)
    assert "\x1b" not in page.stdout and "Checked" in page.stdout
    (run / "aside").mkdir()
    (run / "aside" / "train.log").write_text("step 1 loss 2.3\nsomething is odd\n")
    told = doctor("ask", "my dataloader workers die in docker", "--run", run / "aside").stderr
    assert "apart" in told or "fits" in told or "tests" in told  # which further check is made, and what for
    shutil.rmtree(run / "aside")
    plain = doctor("ask", "Why?", "--run", run, "--plain", "--quiet")
    assert plain.stdout.startswith("cause: ") and plain.stderr == ""
    assert doctor("ask", "Why?", "--run", run, "--markdown").stdout.startswith("# ")


def test_the_current_folder_and_standard_input_are_runs(doctor, process, run, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    here = Report.model_validate_json(doctor("ask", "Why?", "--json", cwd=run).stdout)
    assert {e.file for e in here.evidence} <= {"train.log", None}
    piped = process("ask", "Why?", "--run", "-", "--json", stdin=(run / "train.log").read_text())
    assert Report.model_validate_json(piped.stdout).root_cause.id == here.root_cause.id
    assert not list(tmp_path.glob("doctor-stdin-*"))  # the spooled copy is gone


def test_triage_writes_only_where_it_is_asked_to_and_fail_on_turns_a_cause_into_a_code(doctor: Doctor, run: Path) -> None:
    done = doctor("triage", run, "--fail-on", "likely", "--json")
    first = Report.model_validate_json(done.stdout)
    assert done.returncode == int(first.status in ("likely", "confirmed"))
    assert sorted(p.name for p in run.iterdir()) == ["train.log"]
    written = doctor("triage", run, "--write", "--json")
    assert written.returncode == 0
    assert sorted(p.name for p in run.iterdir()) == ["doctor-report.html", "doctor-report.json", "doctor-report.md", "train.log"]
    kept = Report.model_validate_json((run / "doctor-report.json").read_text())
    assert kept == Report.model_validate_json(written.stdout)
    done = doctor("triage", run, "--fail-on", "confirmed", "--json")
    again = Report.model_validate_json(done.stdout)
    assert done.returncode == int(again.status == "confirmed")
    assert {e.file for e in again.evidence} <= {"train.log", None}  # its own files are no material
    assert again.root_cause.id == kept.root_cause.id == first.root_cause.id


def test_every_tool_runs_alone(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by the command; what one has read of the run is kept for the next, as reading it sixty times takes long."""
    from traindoctor.agent.tools.tool import all_tools

    listed = doctor("tool").stdout.splitlines()
    assert len(listed) == len(all_tools())
    kept, make = [], workspace.Workspace
    monkeypatch.setattr(workspace, "Workspace", lambda *a, **k: kept[0] if kept else kept.append(make(*a, **k)) or kept[0])
    for name, tool in all_tools().items():
        arguments = [f"--{n.replace('_', '-')}=1" for n, f in tool.arguments.model_fields.items() if f.is_required()]
        done = doctor("tool", name.replace("_", "-"), DEMO, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tool"] == name


def test_tool_options_come_from_the_signature(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    from traindoctor.agent.tools.tool import all_tools

    for name, tool in all_tools().items():
        if tool.arguments.model_fields:
            monkeypatch.setenv("COLUMNS", "120")
            shown = doctor("tool", name.replace("_", "-"), "--help").stdout
            for argument in tool.arguments.model_fields:
                assert f"--{argument.replace('_', '-')}" in shown
            return
    pytest.fail("no tool has arguments")


def test_playbooks_list_show_check_and_cover(doctor: Doctor) -> None:
    listed = json.loads(doctor("playbook", "list", "--json").stdout)
    slug = listed[0]["slug"]
    assert doctor("playbook", "show", slug).stdout.startswith("---\ncause: ")
    checked = doctor("playbook", "check")
    assert checked.returncode == 0, checked.stdout
    assert json.loads(doctor("playbook", "coverage", "--json").stdout)[listed[0]["cause"]]


def test_the_index_answers_by_words_before_it_is_built(doctor, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_CACHE", str(tmp_path))
    done = doctor("index", "search", "CUDA out of memory", "--json")
    assert done.returncode == 0, done.stderr
    assert {"document", "headings", "score", "text"} <= set(json.loads(done.stdout)[0])
    assert "words alone" in done.stderr
    nothing = doctor("index", "search", "how do I bake sourdough bread")
    assert nothing.stdout == "Nothing in the index bears on that.\n"
    assert json.loads(doctor("index", "status", "--json").stdout)["vectors"] is False


def test_config_tells_who_set_what(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(os.environ["DOCTOR_CONFIG"])
    path.write_text('allow = "probe"\nchroma_url = "http://index:8000"\n')
    monkeypatch.setenv("DOCTOR_ALLOW", "costly")
    settings = {s["name"]: s for s in json.loads(doctor("config", "show", "--json").stdout)["settings"]}
    assert (settings["allow"]["value"], settings["allow"]["origin"]) == ("costly", "DOCTOR_ALLOW")
    assert settings["chroma_url"]["origin"] == str(path)
    path.write_text("modle = 'x'\n")
    done = doctor("ask", "why?", "--run", DEMO)
    assert done.returncode == 2 and one_line(done.stderr) and "modle" in done.stderr


def test_a_config_in_the_run_sets_nothing(doctor: Doctor, run: Path) -> None:
    (run / "config.toml").write_text('allow = "costly"\n')
    (run / "doctor.toml").write_text('allow = "costly"\n')
    shown = doctor("config", cwd=run).stdout
    assert "allow = read  (default)" in shown


def test_a_reader_that_leaves_early_is_no_error(run: Path) -> None:
    code = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
    command = f'{sys.executable} -c "{code}" ask why --run {run} --json | head -c 10; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr and done.stdout.endswith("0\n")


def reads_input(pid: int) -> bool:
    """Whether a process waits in `read` on its standard input."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 ")
    except PermissionError:  # where nobody may look, it is waited for long enough
        time.sleep(2)
        return True


def test_interruption_is_130_and_one_line(tmp_path: Path) -> None:
    fifo = tmp_path / "stdin"
    os.mkfifo(fifo)
    code = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
    reader = os.open(fifo, os.O_RDWR)
    process = subprocess.Popen([sys.executable, "-c", code, "ask", "why", "--run", "-"], stdin=reader, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    ends = time.monotonic() + 30
    while not reads_input(process.pid) and time.monotonic() < ends:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    os.close(reader)
    assert (process.returncode, out) == (130, "")
    assert one_line(err), err
