"""What one node hands over: a small program, shipped as source to `python3 -`, that writes a tar to standard output.

Standard library alone, for Python 3.6 and newer: nothing of ours needs to be on the node. It opens regular files only,
follows no link, and stays within its bytes; what is left out is named in the listing.
"""

# Plain words of Python 3.6, since it runs with whatever the node has:
# ruff: noqa: PTH100, PTH112, PTH114, PTH115, PTH116, PTH118, PTH119, PTH123, PTH207, PTH208, SIM115, UP031

import glob
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time

LEAVE = (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".distcp", ".parquet", ".arrow", ".tar", ".gz", ".npy", ".npz")
FILES = 4000  # of one node
SMALL = 4096  # bytes of room below which nothing more is begun
COMMANDS = {
    "nvidia-smi.txt": ["nvidia-smi"],
    "nvidia-smi-q.txt": ["nvidia-smi", "-q"],
    "df.txt": ["df", "-h"],
    "df-inodes.txt": ["df", "-i"],
    "free.txt": ["free", "-m"],
    "uptime.txt": ["uptime"],
}
SECONDS = 8.0  # for each command


class Parcel:
    """A tar on standard output with a bound on the bytes of its members."""

    def __init__(self, limit, stream):
        self.left = limit
        self.tar = tarfile.open(fileobj=stream, mode="w|")
        self.listing = []

    def add(self, name, data):
        info = tarfile.TarInfo(name)
        info.size, info.mtime = len(data), int(time.time())
        self.left -= len(data)
        self.tar.addfile(info, io.BytesIO(data))

    def note(self, path, size, what):
        self.listing.append({"path": path, "size": size, "what": what})


def run(argv, seconds=SECONDS, limit=2 << 20):
    """What a program prints; empty where it is not there. One that hangs is left behind, not waited for."""
    if not shutil.which(argv[0]):
        return b""
    with open(os.devnull) as nothing:
        child = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            return child.communicate(timeout=seconds)[0][-limit:]
        except subprocess.TimeoutExpired:
            child.kill()
            return ("%s: no answer within %g s\n" % (" ".join(argv), seconds)).encode()


def kernel(since):
    """The kernel's lines since the job began, with times of the day; none of what other jobs left before."""
    said = run(["dmesg"]).decode("utf-8", "replace")
    with open("/proc/uptime") as stream:
        boot = time.time() - float(stream.read().split()[0])
    kept = []
    for line in said.splitlines():
        found = re.match(r"(?:<\d+>)?\[ *(\d+\.\d+)\] ?(.*)", line)
        if found and boot + float(found.group(1)) >= since - 60:
            at = time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(boot + float(found.group(1))))
            kept.append("[%s] %s\n" % (at, found.group(2)))
    return "".join(kept).encode()


def wanted(patterns):
    """Regular files that the patterns name, those below folders too; the newest first."""
    found = {}
    for pattern in patterns:
        for path in glob.glob(os.path.expandvars(pattern)):
            if os.path.isdir(path) and not os.path.islink(path):
                for folder, below, names in os.walk(path):
                    below[:] = [name for name in below if not name.startswith(".")]
                    for name in names:
                        look(os.path.join(folder, name), found)
                    if len(found) > 4 * FILES:
                        break
            else:
                look(path, found)
    return sorted(found.values(), key=lambda entry: -entry[1].st_mtime)


def look(path, found):
    """Note a regular file, links followed, once however many names it has; one that is gone is left out."""
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            info, path = os.stat(path), os.path.realpath(path)
    except OSError:
        return
    if stat.S_ISREG(info.st_mode):
        found.setdefault((info.st_dev, info.st_ino), (path, info))


def files(parcel, order):
    """Put the files that the order names into the parcel."""
    seen = order.get("seen") or {}
    for count, (path, info) in enumerate(wanted(order.get("paths") or [])):
        if seen.get(path) == [info.st_size, int(info.st_mtime), info.st_ino]:
            parcel.note(path, info.st_size, "the same file is read where doctor runs")
        elif path.endswith(LEAVE):
            parcel.note(path, info.st_size, "left out: a checkpoint, data or an archive")
        elif count >= FILES or parcel.left < SMALL:
            parcel.note(path, info.st_size, "left out: no room")
        else:
            one(parcel, path, info)


def one(parcel, path, info):
    """A file whole, or its start and its end."""
    room = max(SMALL, parcel.left // 4)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(fd, "rb") as stream:
            if info.st_size <= room:
                data, what = stream.read(room), "whole"
            else:
                head = stream.read(room // 4)
                stream.seek(info.st_size - room // 2)
                tail = stream.read(room // 2)
                gone = info.st_size - len(head) - len(tail)
                data = head + ("\n[... %d bytes left out ...]\n" % gone).encode() + tail
                what = "start and end"
    except OSError as e:
        parcel.note(path, info.st_size, "cannot be read: %s" % e.strerror)
        return
    parcel.add("files" + os.path.abspath(path), data)
    parcel.note(path, info.st_size, what)


def stacks(parcel, job):
    """Stacks of the job's live processes: by py-spy where it is, else what the kernel tells of each."""
    mark = ("SLURM_JOB_ID=%s" % job).encode()
    ends = time.time() + 20
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            with open("/proc/%s/environ" % name, "rb") as stream:
                variables = stream.read().split(b"\0")
            program = os.path.basename(os.readlink("/proc/%s/exe" % name))
        except OSError:
            continue
        if mark not in variables or not program.startswith("python") or int(name) == os.getpid() or time.time() > ends:
            continue
        told = dict(v.split(b"=", 1) for v in variables if b"=" in v)
        rank = told.get(b"RANK") or told.get(b"SLURM_PROCID") or b"x"
        said = run(["py-spy", "dump", "--pid", name], 10.0)
        if not said.strip():
            for part in ("status", "wchan", "stack"):
                try:
                    with open("/proc/%s/%s" % (name, part), "rb") as stream:
                        said += ("--- %s\n" % part).encode() + stream.read(8192) + b"\n"
                except OSError:
                    continue
        parcel.add(
            "stacks/rank_%s_pid_%s.txt" % (re.sub(r"\D", "", rank.decode("ascii", "replace")) or "x", name), said
        )


def main():
    """Do what the order (one argument, JSON) says; the parcel goes to standard output."""
    order = json.loads(sys.argv[1])
    parcel = Parcel(order["limit"], sys.stdout.buffer)
    if order.get("alive"):
        stacks(parcel, order.get("job"))
    said = kernel(order.get("since") or 0)
    if said:
        parcel.add("dmesg.txt", said)
    for name, argv in COMMANDS.items():
        said = run(argv)
        if said:
            parcel.add(name, said)
    files(parcel, order)
    facts = {"host": os.uname()[1], "time": time.time(), "listing": parcel.listing[:FILES]}
    parcel.add("node.json", json.dumps(facts).encode())
    parcel.tar.close()


if __name__ == "__main__":
    main()
