"""A Slurm of two nodes; the second one goes away while a job of both is running."""

import os
import signal
import subprocess
import time
from pathlib import Path

from cluster import Cluster, until

work = Path.cwd()


class Impatient(Cluster):
    """Takes a node for lost after seconds, not minutes."""

    def _configure(self):
        super()._configure()
        self.conf.write_text(self.conf.read_text() + "SlurmdTimeout=8\nSlurmctldParameters=node_reg_mem_percent=1\nInactiveLimit=0\n")


def of_node(name):
    """Everything that runs on a node: its daemon, the step's keeper, the agent and the ranks."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            argv = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        mine = str(cluster.conf).encode() in environ
        if mine and (f"SLURMD_NODENAME={name}\0".encode() in environ or argv.endswith(f"-N\0{name}\0".encode())):
            found.append(int(entry.name))
            kids = subprocess.run(["ps", "-o", "pid=", "--ppid", entry.name], capture_output=True, text=True).stdout.split()
            found += [int(kid) for kid in kids] if b"slurmd" not in argv else []
    return found


def keeper(pids):
    """The slurmstepd above any of these."""
    above = set()
    for pid in pids:
        parent = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
        name = subprocess.run(["ps", "-o", "comm=", "-p", parent or "1"], capture_output=True, text=True).stdout
        if "slurmstepd" in name:
            above.add(int(parent))
    return above


cluster = Impatient(work / "tmp" / "slurm")
cluster.start()
try:
    job = cluster.run("sbatch", "--parsable", "job.sbatch", cwd=work).stdout.strip()
    logs = work / "logs"
    until(lambda: (logs / "n2.log").exists() and "step 60/" in (logs / "n2.log").read_text(), 60, "step 60")
    gone = of_node("n2")
    for pid in [*keeper(gone), *gone]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    state = cluster.ended(job, 90)
    time.sleep(2)
    (work / "sacct.txt").write_text(cluster.run("sacct", "-j", job, "--format=JobID,JobName%16,State%12,ExitCode,NodeList,Start,End,MaxRSS").stdout)
    (work / "sinfo.txt").write_text(cluster.run("sinfo", "-N", "-l").stdout + cluster.run("sinfo", "-R").stdout)
    print(state)
finally:
    cluster.stop()
