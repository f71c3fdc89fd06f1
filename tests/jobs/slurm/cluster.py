"""A real Slurm of our own for tests: controller, accounting with its database, and several nodes on one machine.

Everything lives in one folder: configuration, key, sockets, database, logs. Nothing under /etc is read or written, and
every daemon is a child that dies with the tests. Jobs of a user other than root run as that user.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "sbatch", "sacct", "srun")
PACKAGES = ("slurm-wlm", "slurmdbd", "mariadb-server", "munge")
NODES = ("n1", "n2", "n3")
MEMORY, CPUS = 3000, 4  # of each node, as Slurm is told: MiB, and more than there are
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def missing() -> str:
    """Why no cluster can be started here; empty where one can. Installs it in continuous integration."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    if _lacking() and os.environ.get("CI") == "true" and shutil.which("apt-get"):
        _install()
    lacking = _lacking()
    return f"not installed: {', '.join(lacking)} (packages {' '.join(PACKAGES)})" if lacking else ""


def _lacking() -> list[str]:
    return [name for name in PROGRAMS if not _program(name)]


def _program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") or ""


def _install() -> None:
    """From the distribution's own mirror, within five minutes; what fails shows as missing programs."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    ends = time.monotonic() + 300
    for argv in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *PACKAGES]):
        try:
            subprocess.run(argv, env=quiet, capture_output=True, timeout=ends - time.monotonic(), check=False)
        except subprocess.TimeoutExpired:
            return


class Cluster:
    """Slurm with accounting in a folder of its own.

    Attributes:
        environ: what a program needs in its environment to talk to this cluster.
    """

    def __init__(self, folder: Path, epilog: Path | None = None, node_epilog: Path | None = None) -> None:
        self.folder = folder
        self._epilogs = {"EpilogSlurmctld": epilog, "Epilog": node_epilog}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.conf = folder / "etc" / "slurm.conf"
        self.environ = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        for name in [n for n in self.environ if n.startswith(("SLURM_", "SBATCH_")) and n != "SLURM_CONF"]:
            del self.environ[name]

    def start(self) -> None:
        """Start all daemons and wait until every node is idle.

        Raises:
            RuntimeError: one did not come up; the end of its log is in the message.
        """
        for name in ("etc", "log", "state", "db", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir(exist_ok=True)
        self._configure()
        self._start_munge()
        self._start_database()
        self._daemon("slurmdbd", "-D")
        self._until("slurmdbd", lambda: self.run("sacctmgr", "-n", "show", "cluster").returncode == 0)
        self.run("sacctmgr", "-i", "add", "cluster", "doctor")
        self._daemon("slurmctld", "-D", "-c")
        self._until("slurmctld", lambda: self.run("scontrol", "ping").returncode == 0)
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        self._until("slurmd", lambda: self.states() == dict.fromkeys(NODES, "idle"))

    def stop(self) -> None:
        """End jobs and daemons; what does not go by itself is killed."""
        if self._daemons:
            self.run("scancel", "--signal=KILL", "--full", "--user=root")
            self.run("scancel", "--user=nobody")
            self.run("scancel", "--user=root")
        for number in (signal.SIGTERM, signal.SIGKILL):
            for daemon in reversed(self._daemons):
                if daemon.poll() is None:
                    daemon.send_signal(number)
                    try:
                        daemon.wait(5)
                    except subprocess.TimeoutExpired:
                        continue
        for pid in self._left():
            os.kill(pid, signal.SIGKILL)
        self._daemons.clear()

    @contextmanager
    def stopped(self, node: str) -> Iterator[None]:
        """Meanwhile this node's daemon answers nothing, as that of a node that hangs."""
        daemon = next(d for d in self._daemons if isinstance(d.args, list) and d.args[-2:] == ["-N", node])
        daemon.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            daemon.send_signal(signal.SIGCONT)

    def run(self, *argv: str, timeout: float = 60.0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One command against this cluster."""
        return subprocess.run(
            [_program(argv[0]) or argv[0], *argv[1:]], env=self.environ, cwd=cwd, timeout=timeout,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def states(self) -> dict[str, str]:
        """What sinfo says of each node."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T").stdout.split("\n")
        return dict(line.split() for line in lines if line.strip())

    def submit(self, script: str, folder: Path, *options: str, user: str = "") -> str:
        """Queue a batch script and give its job id."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "job.sbatch"
        file.write_text(script)
        if user:
            shutil.chown(folder, user)
        given = (f"--uid={user}",) if user else ()
        done = self.run("sbatch", "--parsable", *given, f"--chdir={folder}", *options, str(file), cwd=folder)
        if done.returncode:
            raise RuntimeError(f"sbatch: {done.stderr.strip()}")
        return done.stdout.strip().split(";")[0]

    def state(self, job: str) -> str:
        """The state of a job by the accounting."""
        said = self.run("sacct", "-n", "-X", "-P", "-j", job, "-o", "State").stdout.strip()
        return said.splitlines()[0] if said else ""

    def ended(self, job: str, seconds: float = 60.0) -> str:
        """Wait for a job's end, and give its state."""
        going = ("", "PENDING", "RUNNING", "COMPLETING", "REQUEUED")
        until(lambda: self.state(job).split(" ")[0] not in going, seconds, f"job {job} did not end: {self.state(job)}")
        return self.state(job)

    def _configure(self) -> None:
        free = [_free_port() for _ in range(3 + len(NODES))]
        self._ports = dict(zip(("ctld", "dbd", "db", *NODES), free, strict=True))
        host = socket.gethostname().split(".")[0]
        auth = f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/run/munge\n"
        run, log = self.folder / "run", self.folder / "log"
        epilogs = "".join(f"{name}={path}\n" for name, path in self._epilogs.items() if path)
        nodes = "".join(
            f"NodeName={n} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._ports[n]} CPUs={CPUS} "
            f"RealMemory={MEMORY} State=UNKNOWN\n"
            for n in NODES
        )
        self.conf.write_text(
            f"ClusterName=doctor\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={self._ports['ctld']}\n{auth}" f"SlurmUser=root\nSlurmdUser=root\nStateSaveLocation={self.folder}/state\nSlurmdSpoolDir={self.folder}/spool-%n\n" f"SlurmctldPidFile={run}/slurmctld.pid\nSlurmdPidFile={run}/slurmd-%n.pid\n" f"SlurmctldLogFile={log}/slurmctld.log\nSlurmdLogFile={log}/slurmd-%n.log\n" "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n" "SlurmdParameters=config_overrides\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\n" "DefMemPerCPU=200\nReturnToService=2\nOverTimeLimit=0\nKillWait=2\nSchedulerParameters=sched_interval=2\n" "JobRequeue=1\nMinJobAge=300\nCompleteWait=0\n" "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherFrequency=task=1\n" "JobAcctGatherParams=OverMemoryKill\nAccountingStorageType=accounting_storage/slurmdbd\n" f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={self._ports['dbd']}\n" f"AccountingStoragePass={run}/munge\nAccountingStoreFlags=job_script\n{epilogs}{nodes}" "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n" f"PartitionName=all Nodes={','.join(NODES)} Default=YES PriorityTier=9 PreemptMode=OFF MaxTime=INFINITE\n" f"PartitionName=cheap Nodes={NODES[0]} PriorityTier=1 PreemptMode=CANCEL MaxTime=INFINITE\n" f"PartitionName=again Nodes={NODES[0]} PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE\n"
        )  # fmt: skip
        conf = self.conf.parent / "slurmdbd.conf"
        conf.write_text(
            f"{auth}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={self._ports['dbd']}\nSlurmUser=root\n"
            f"LogFile={log}/slurmdbd.log\nPidFile={run}/slurmdbd.pid\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort={self._ports['db']}\nStorageUser=root\nStoragePass=none\n"
            "StorageLoc=slurm_acct\n"
        )
        conf.chmod(0o600)

    def _start_munge(self) -> None:
        key, run = self.folder / "etc" / "munge.key", self.folder / "run"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        self._daemon(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={run}/munge",
            f"--pid-file={run}/munged.pid", f"--log-file={self.folder}/log/munged.log", f"--seed-file={run}/seed",
        )  # fmt: skip
        self._until("munged", (run / "munge").exists)

    def _start_database(self) -> None:
        """Without tables of users: it listens on loopback alone, and ends with the tests."""
        self._daemon(
            "mariadbd", "--no-defaults", "--user=root", "--skip-grant-tables", f"--datadir={self.folder}/db",
            f"--socket={self.folder}/run/db.sock", f"--pid-file={self.folder}/run/db.pid",
            f"--port={self._ports['db']}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        self._until("mariadbd", lambda: _answers(self._ports["db"]))

    def _daemon(self, *argv: str) -> None:
        libc = ctypes.CDLL(None)
        name = argv[0] if argv[0] != "slurmd" else f"slurmd-{argv[-1]}"
        with (self.folder / "log" / f"{name}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen(
                    [_program(argv[0]), *argv[1:]], env=self.environ, cwd=self.folder, stdin=subprocess.DEVNULL,
                    stdout=out, stderr=out, start_new_session=True,
                    preexec_fn=lambda: libc.prctl(_DIES_WITH_PARENT, signal.SIGTERM),
                )
            )  # fmt: skip

    def _until(self, name: str, holds: Callable[[], bool]) -> None:
        try:
            until(holds, 60, name)
        except TimeoutError:
            logs = [*self.folder.glob(f"log/{name}*")]
            raise RuntimeError(f"{name} did not come up: " + "\n".join(p.read_text()[-1500:] for p in logs)) from None

    def _left(self) -> list[int]:
        """Processes that belong to this cluster, such as what a job left behind."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"SLURM_CONF={self.conf}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid()]


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it did not, in time.
    """
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError(what)
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
