"""Sixty and more patches that must never be applied: each a change of a report's one good patch."""

from __future__ import annotations

from typing import Any

OLD = "a: 1\nb: 2\nc: 3\n"
GOOD = "--- a/config.yaml\n+++ b/config.yaml\n@@ -1,3 +1,3 @@\n a: 1\n-b: 2\n+b: 9\n c: 3\n"
_BODY = GOOD.split("\n", 2)[2]
_MADE = "@@ -0,0 +1 @@\n+x\n"


def _about(name: str, other: str | None = None, body: str = _BODY) -> str:
    return f"--- a/{name}\n+++ b/{name if other is None else other}\n{body}"


def _of(file: str, **more: Any) -> dict[str, Any]:
    """A patch of another file, its diff about just that."""
    return {"file": file, "diff": _about(file), **more}


def _git(rows: str, body: str = GOOD) -> dict[str, Any]:
    return {"diff": f"diff --git a/config.yaml b/config.yaml\n{rows}{body}"}


HOSTILE: dict[str, dict[str, Any]] = {
    # another file than the patch says
    "header up": {"diff": _about("../outside.yaml")},
    "header up within": {"diff": _about("x/../../outside.yaml")},
    "header absolute": {"diff": GOOD.replace("a/config.yaml", "/etc/passwd").replace("b/config.yaml", "/etc/passwd")},
    "header home": {"diff": _about("~/.bashrc")},
    "header of two files": {"diff": _about("config.yaml", "other.yaml")},
    "header without prefix": {"diff": GOOD.replace("a/", "").replace("b/", "")},
    "header with a time": {"diff": GOOD.replace("config.yaml\n", "config.yaml\t2026-01-01 00:00:00\n")},
    "header with ./": {"diff": _about("./config.yaml")},
    "header quoted octal": {"diff": GOOD.replace("a/config.yaml", '"a/\\143onfig.yaml"')},
    "header with CR": {"diff": GOOD.replace("config.yaml\n", "config.yaml\r\n")},
    "header swapped": {"diff": GOOD.replace("--- a", "+++ a").replace("+++ b", "--- b")},
    "no header": {"diff": _BODY},
    "second header": {"diff": GOOD + _about("other.yaml")},
    "second header of the same": {"diff": GOOD + GOOD},
    "second header outside": {"diff": GOOD + _about("../outside.yaml", body=_MADE)},
    # files that no patch may reach
    "file up": _of("../outside.yaml"),
    "file up within": _of("sub/../../outside.yaml"),
    "file absolute": _of("/tmp/outside.yaml"),
    "file with dots": _of("./config.yaml"),
    "file with double slash": _of("sub//inner.yaml"),
    "file empty": _of(""),
    "file is the folder": _of("."),
    "file is a folder": _of("sub"),
    "file with NUL": _of("config.yaml\0"),
    "file with newline": _of("config.yaml\n+++ b/x"),
    "file of git": _of(".git/config"),
    "file of git in capitals": _of(".GIT/config"),
    "file of a hook": _of("sub/.git/hooks/post-checkout"),
    "file through a link out": _of("out.yaml"),
    "file through a folder out": _of("outer/outside.yaml"),
    "file through a loop": _of("loop.yaml"),
    "file through a link into git": _of("into.yaml"),
    "file that is not there": _of("new.yaml"),
    "file that is a pipe": _of("pipe.yaml"),
    "file with two names": _of("twin.yaml"),
    "file that is binary": _of("weights.yaml"),
    "file that is read-only": _of("kept.yaml"),
    "file of a healthy run": _of("r2/config.yaml"),
    # more than a plain change
    "creation": {"diff": GOOD.replace("--- a/config.yaml", "--- /dev/null")},
    "deletion": {"diff": GOOD.replace("+++ b/config.yaml", "+++ /dev/null")},
    "creation in git's words": _git("new file mode 100644\nindex 0000000..e69de29\n", ""),
    "deletion in git's words": _git("deleted file mode 100644\n"),
    "rename": _git("similarity index 90%\nrename from config.yaml\nrename to ../x\n"),
    "copy": _git("similarity index 90%\ncopy from config.yaml\ncopy to x\n"),
    "made executable": _git("old mode 100644\nnew mode 100755\n"),
    "made a link": _git("old mode 100644\nnew mode 120000\n"),
    "made a link by creation": _git("new file mode 120000\nindex 0000000..1111111\n", "--- /dev/null\n+++ b/config.yaml\n"
                                    "@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"),
    "submodule": _git("index 1111111..2222222 160000\n", "--- a/config.yaml\n+++ b/config.yaml\n@@ -1 +1 @@\n"
                      "-Subproject commit 1111111\n+Subproject commit 2222222\n"),
    "binary of git": _git("index 1..2\nGIT binary patch\nliteral 3\nKcmZ\n\n", ""),
    "binary in words": _git("Binary files a/config.yaml and b/config.yaml differ\n", ""),
    "combined": {"diff": GOOD.replace("@@ -1,3 +1,3 @@", "@@@ -1,3 -1,3 +1,3 @@@")},
    "mail before": {"diff": "From: x\nSubject: [PATCH] y\n\n" + GOOD},
    "text after": {"diff": GOOD + "-- \n2.39.5\n"},
    "ed script": {"diff": "2c\nb: 9\n.\n"},
    "context diff": {"diff": "*** a/config.yaml\n--- b/config.yaml\n***************\n*** 1,3 ****\n"},
    # damaged or for another text
    "counts too large": {"diff": GOOD.replace("-1,3", "-1,4")},
    "counts too small": {"diff": GOOD.replace("+1,3", "+1,2")},
    "counts huge": {"diff": GOOD.replace("-1,3", "-1,999999999")},
    "counts beyond all numbers": {"diff": GOOD.replace("-1,3", "-1," + "9" * 5000)},
    "counts negative": {"diff": GOOD.replace("-1,3", "--1,3")},
    "counts in other digits": {"diff": GOOD.replace("-1,3", "-\u0661,\u0663")},
    "starts elsewhere": {"diff": GOOD.replace("-1,3 +1,3", "-2,3 +2,3")},
    "starts at nothing": {"diff": GOOD.replace("-1,3 +1,3", "-0,3 +0,3")},
    "sides apart": {"diff": GOOD.replace("+1,3", "+7,3")},
    "context of another text": {"diff": GOOD.replace(" a: 1", " a: 7")},
    "removes what is not there": {"diff": GOOD.replace("-b: 2", "-b: 3")},
    "no context at all": {"diff": _about("config.yaml", body="@@ -1,0 +2 @@\n+evil: 1\n")},
    "beyond the end": {"diff": _about("config.yaml", body="@@ -90,0 +91 @@\n+evil: 1\n")},
    "out of order": {"diff": GOOD + "@@ -1 +1 @@\n-a: 1\n+a: 2\n"},
    "end before the end": {"diff": GOOD.replace(" a: 1\n", " a: 1\n\\ No newline at end of file\n")},
    "something after an end": {"diff": GOOD.replace("+b: 9\n", "+b: 9\n\\ No newline at end of file\n")},
    "changes nothing": {"diff": _about("config.yaml", body="@@ -1 +1 @@\n a: 1\n")},
    "no hunk": {"diff": "--- a/config.yaml\n+++ b/config.yaml\n"},
    "cut in a hunk": {"diff": GOOD[:-7]},
    "cut in a line": {"diff": GOOD[:-1]},
    "empty": {"diff": ""},
    "NUL": {"diff": GOOD.replace("b: 9", "b: \0")},
    "half a character": {"diff": GOOD.replace("b: 9", "b: \ud800")},
    "five megabytes": {"diff": GOOD.replace("b: 9", "b: " + "9" * 5_000_000)},
    "many hunks": {"diff": _about("config.yaml", body="@@ -1 +1 @@\n-a: 1\n+a: 1\n" * 25_000)},
    "breaks the file": {"diff": GOOD.replace("b: 9", "b: [9")},
    "made for another content": {"sha256": "0" * 64},
    "digest of nothing": {"sha256": ""},
}  # fmt: skip
