"""`doctor run` in a batch: exit codes, streams, signals, descriptors, what is left behind; as without doctor."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PY = sys.executable
DOCTOR = [PY, "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())", "run", "--quiet", "--no-triage"]
SECONDS = 60.0

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command under doctor; whatever of its group is left is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, options: tuple[str, ...] = (), **more: Any) -> subprocess.Popen[bytes]:
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **more}
        # whoever started the tests may ignore some (nohup), and what is ignored stays so in children
        plain = ["env", "--default-signal=HUP,INT,QUIT,TERM,USR1,USR2"]
        argv = [*plain, *DOCTOR, "--run", str(tmp_path / "run"), *options, "--", *command]
        process = subprocess.Popen(argv, start_new_session=True, cwd=tmp_path, **out)
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def record(folder: Path, attempt: int = 1) -> dict[str, Any]:
    """The record of an attempt."""
    return json.loads((folder / "run" / "doctor-run" / f"try_{attempt}" / "record.json").read_text(encoding="utf-8"))


def until(holds: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.05)


def test_a_script_sees_the_exit_codes_it_would(start: Start, tmp_path: Path) -> None:
    jobs = {f"exit {n}": n for n in (0, 1, 255)} | {
        f"kill -{s} $$": 128 + n for s, n in {"SEGV": 11, "KILL": 9}.items()
    }
    for script, code in jobs.items():
        assert start("sh", "-c", script).wait(SECONDS) == code
    last = record(tmp_path, len(jobs))
    assert last["exit"] == {"code": 137, "signal": "SIGKILL"}
    assert (last["state"], last["schema"]) == ("ended", "traindoctor.run/1")


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("./plain.txt", 126), ("./none.sh", 127)])
def test_what_cannot_be_started_is_one_line(start: Start, tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "plain.txt").write_text("text", encoding="utf-8")
    process = start(command)
    out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err.count(b"\n")) == (code, b"", 1)
    assert not (tmp_path / "run").exists()


def test_a_missing_interpreter_leaves_no_attempt(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    script.chmod(0o755)
    process = start("./job")
    assert b"interpreter" in process.communicate(timeout=SECONDS)[1]
    assert process.returncode == 127
    assert not list((tmp_path / "run").rglob("try_*"))


def test_a_script_without_a_first_line_runs_as_in_a_shell(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "job"
    script.write_text("echo from sh; exit 5\n", encoding="utf-8")
    script.chmod(0o755)
    process = start("./job")
    assert process.communicate(timeout=SECONDS)[0] == b"from sh\n"
    assert process.returncode == 5


def test_much_binary_output_arrives_whole_and_in_order(start: Start, tmp_path: Path) -> None:
    code = (
        "import sys, random\nr = random.Random(1)\nfor _ in range(200): sys.stdout.buffer.write(r.randbytes(1 << 20))"
    )
    process = start(PY, "-c", code)
    assert process.stdout
    seen, size = hashlib.sha256(), 0
    while data := process.stdout.read1(1 << 20):  # type: ignore[union-attr]
        seen.update(data)
        size += len(data)
    assert process.wait(SECONDS) == 0
    assert size == 200 << 20
    kept = hashlib.sha256((tmp_path / "run/doctor-run/try_1/console.log").read_bytes())
    assert seen.hexdigest() == kept.hexdigest()


def test_both_streams_in_one_file_keep_their_order(start: Start, tmp_path: Path) -> None:
    code = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    with (tmp_path / "both").open("wb") as both:
        assert start(PY, "-c", code, stdout=both, stderr=subprocess.STDOUT).wait(SECONDS) == 0
    lines = [line for line in (tmp_path / "both").read_text(encoding="utf-8").split() if line.isdigit()]
    assert lines == [str(i) for i in range(500)]


def test_streams_apart_stay_apart(start: Start) -> None:
    process = start("sh", "-c", "cat; echo err >&2", stdin=subprocess.PIPE)
    out, err = process.communicate(b"\x00\xffgiven\n", timeout=SECONDS)
    assert out == b"\x00\xffgiven\n"
    assert err == b"err\n"


def test_a_reader_that_leaves_is_noticed_as_without_doctor(start: Start) -> None:
    process = start("yes")
    assert process.stdout
    assert process.stdout.read(4) == b"y\ny\n"
    process.stdout.close()
    process.stdout = None
    assert process.wait(SECONDS) == 128 + signal.SIGPIPE


def test_descriptors_limits_and_dispositions_are_inherited(tmp_path: Path) -> None:
    script = (
        "umask; ulimit -n; pwd; cat <&7; ls /proc/self/fd | wc -l; grep SigBlk /proc/self/status; env | grep -c LC_"
    )
    (tmp_path / "given").write_text("seven\n", encoding="utf-8")
    doctor = shlex.join([*DOCTOR, "--run", str(tmp_path / "run"), "--"])
    shell = f"umask 027; ulimit -n 321; exec 7<given; trap '' HUP; unset LC_ALL LC_CTYPE LANG; %s sh -c '{script}'"
    plain, under = (
        subprocess.run(["sh", "-c", shell % how], cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
        for how in ("", doctor)
    )
    assert under.stdout == plain.stdout
    assert b"seven\n" in plain.stdout


def test_a_closed_stdout_stays_closed(tmp_path: Path) -> None:
    doctor = shlex.join([*DOCTOR, "--run", str(tmp_path / "run"), "--"])
    shell = f"{doctor} sh -c 'test -e /proc/self/fd/1 && exit 3; exit 4' >&-"
    assert subprocess.run(["sh", "-c", shell], timeout=SECONDS, check=False).returncode == 4


NOTING = """
import os, signal, sys, time
got = []
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, lambda n, f: os.write(1, b"%d\\n" % n))
os.write(1, b"ready\\n")
end = time.monotonic() + 60
while not os.path.exists("stop") and time.monotonic() < end:
    time.sleep(0.02)
"""


@pytest.mark.parametrize("to_all", [False, True], ids=["to doctor", "to the group"])
def test_every_signal_reaches_the_job_once(start: Start, tmp_path: Path, to_all: bool) -> None:
    process = start(PY, "-c", NOTING)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
    for number in numbers:
        (os.killpg if to_all else os.kill)(process.pid, number)
        assert process.stdout.readline() == b"%d\n" % number
        until(lambda n=number: not relay_holds(process.pid, n))
    (tmp_path / "stop").touch()
    assert process.stdout.read() == b""  # none came twice
    assert process.wait(SECONDS) == 0
    told = record(tmp_path)["told_to_end"]
    assert [t["signal"] for t in told] == ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"]
    assert str(os.getpid()) in told[0]["by"]


def relay_holds(supervisor: int, number: int) -> bool:
    """Whether a signal is still pending on a process of the supervisor's, which forgets it in a moment."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text(encoding="ascii").split()
    for child in children:
        status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        pending = next(line for line in status.splitlines() if line.startswith("ShdPnd"))
        if int(pending.split()[1], 16) >> (number - 1) & 1:
            return True
    return False


def test_doctor_killed_and_the_job_goes_on(start: Start, tmp_path: Path) -> None:
    code = "import os, time\nprint('one', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    process = start(PY, "-c", code + "print('two')\nopen('done', 'w').close()")
    assert process.stdout
    assert process.stdout.readline() == b"one\n"
    process.kill()
    process.wait(SECONDS)
    (tmp_path / "go").touch()
    assert process.stdout.read() == b"two\n"
    until(lambda: (tmp_path / "done").exists())
    assert (tmp_path / "run/doctor-run/try_1/console.log").read_bytes() == b"one\ntwo\n"
    assert record(tmp_path)["state"] == "running"


def test_what_the_job_leaves_lives_on_and_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    child = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('late', flush=True)"
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {child!r}])\nprint('main')\nsys.exit(3)"
    process = start(PY, "-c", code)
    assert process.wait(SECONDS) == 3
    (tmp_path / "go").touch()
    assert process.stdout
    assert process.stdout.read() == b"main\nlate\n"


def test_a_job_that_ignores_sigterm_is_not_forced(start: Start, tmp_path: Path) -> None:
    process = start("sh", "-c", "trap 'echo asked' TERM; echo ready; while ! test -e go; do sleep 0.05; done; exit 9")
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.stdout.readline() == b"asked\n"
    until(lambda: record(tmp_path)["told_to_end"])  # on disk at once
    (tmp_path / "go").touch()
    assert process.wait(SECONDS) == 9
