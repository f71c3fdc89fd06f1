"""The one door through which text of a run reaches a terminal: escapes, control and bidi characters come out inert."""

from __future__ import annotations

import re

# What takes no room wherever it stands (Default_Ignorable_Code_Point of Unicode, and the marks of annotations): soft
# hyphens, joiners, fillers, which count as letters in a name of Python, variation selectors, tags.
_NO_ROOM = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[\u2028\u2029{_NO_ROOM}]")
# C0 except tab and newline, DEL, C1, line separators, and what is not seen.
_INERT = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_NO_ROOM}]")


def inert(text: str) -> str:
    """Text with every character that could steer a terminal or hide in it made visible (`\\x1b`, `\\u202e`)."""
    return _INERT.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The same on one line: a newline (file names may hold one) is made visible too."""
    return inert(text).replace("\n", "\\n")


def holds_unseen(text: str) -> bool:
    """Whether a text holds a character beside control ones that nobody sees: it takes no room, or ends a line."""
    return _UNSEEN.search(text) is not None


# ----------
# The one door through which text of a run enters a prompt: control tokens broken, the unseen made visible, fenced.
#
# Nothing here tells good text from bad. It takes from a text the means to be anything but text: what a chat template
# or a tokenizer would read as a turn, a tool call or an image, what a reader of the answer would fetch, what hides
# from the eye, and our own marks. What the words of a hostile line say is left to the gate and to the predicates.

OPEN, SHUT = "\u27e6", "\u27e7"  # white square brackets: no log has them, and `harmless` leaves none
SOURCE_CAP = 160  # characters of a source's name; file names come from the run

# What a reader does not see: C0 but tab and newline (a carriage return may end a line), C1, soft hyphen, fillers, bidi
# and zero-width marks, line separators, lone surrogates, variation selectors (one behind an emoji is ordinary),
# language tags. Our own brackets, and those that look like them, are told in the same way.
_INVISIBLE = re.compile(
    "\r(?!\n)|\ufe0f(?=\ufe0f)|"
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
    f"\ud800-\udfff{OPEN}{SHUT}\u301a\u301b]"
)
_TAGS = (
    r"bos|eos|eot|eod|eop|sop|system|assistant|human|developer|image|video|audio|observation|think(?:ing)?|thought"
    r"|reasoning|scratchpad|instructions?|system[-_](?:prompt|message|reminder|instructions?)|tools|functions|invoke"
    r"|(?:start|begin|end)_of_\w{1,20}|(?:\w{1,20}[-_])?(?:tool|function|fn)[-_]?(?:call|use|code|result|output|response)s?"
    r"|(?:im|turn|fim|sep|tool_call|image|audio)_(?:start|end|begin|sep|prefix|middle|suffix)|arg_(?:key|value)"
    r"|(?:extra_id|special|unused|reserved_special_token|reserved_token|reserved|control)_?\d{1,5}"
)
_BRACKETS = (
    "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|MODEL_SETTINGS|TOOL_(?:CALLS|RESULTS|CONTENT)|ARGS|CALL_ID|THINK"
    "|[gs]MASK|BEGIN_AUDIO|AUDIO|IMG(?:_BREAK|_END)?"
)
# Each alternative is one character that opens something, told by what follows it (or stands before it). A backslash
# put behind that character breaks it: what follows would have to be the character that no longer does.
_OPENING = re.compile(
    "[<\uff1c\ufe64](?="
    "/?[|\uff5c]"  # <|im_start|>, <|turn>, DeepSeek's full-width bars: whatever stands between
    '|/?[\\w"]{1,40}[|\uff5c]>'  # <turn|>
    "|/?(?-i:s)>"
    rf"|/?(?:\w{{1,20}}:)?(?:{_TAGS})\s{{0,3}}/?[>\uff1e\ufe65]"
    r"|/?(?:\w{1,20}:)?(?:function|parameter|tool)(?:=|>)"  # <function=name>; <function name at 0x7f> is Python's own
    r"|(?:\w{1,20}:)?(?:invoke|parameter|function|tool|message)\s{1,3}(?:name|role|id)\s{0,3}="
    r"|/?(?:img|iframe|script|embed|svg)[\s/>]"  # fetched where an answer is shown as HTML
    r"|<{1,3}/?(?-i:[A-Z_]{2,20})>>"  # <<SYS>>
    r")"
    "|[\\[\uff3b](?="
    r"[|\uff5c]\w{1,40}[|\uff5c]\]"  # [|system|]
    rf"|/?(?-i:{_BRACKETS})\]"
    r"|e~\["
    ")"
    r"|\](?=~!?b[\]\[])"  # MiniMax
    # an image that is fetched when shown; (?![ab]) and (?<![ab]) are regular expressions, vec![1] and #![x] are code
    r"|(?<!\(\?)(?<!\(\?<)(?<![\w#])!(?=\[)|!(?=\[[^\]]{0,200}\][(\[])",
    re.IGNORECASE,
)
# The backslash of a spelt character behind such a one is none of ours.
_BROKEN = re.compile("([<\uff1c\ufe64\\[\uff3b\\]!])\\\\(?!x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def harmless(text: str) -> str:
    """Text of a run made inert inside a prompt, otherwise as it was; what is harmless already stays so.

    A control token gets a backslash behind its first character (`<\\|im_start|>`), so does the image mark of markdown;
    an unseen character is spelt (`\\u200b`), as are the marks of `fenced`. Everything else is kept byte for byte.
    """
    return _OPENING.sub(lambda m: m[0] + "\\", _INVISIBLE.sub(_spelt, text))


def same(quote: str, original: str) -> bool:
    """Whether a quotation stands in a text, where either may have been made harmless or not. Blanks count as one."""
    return _bare(quote) in _bare(original)


def fenced(text: str, source: str) -> str:
    """Text of a run as data, between marks that it cannot hold: 24 bytes and the source more.

    The same text has the same bytes each time, for prompt caches and recorded exchanges.

    Args:
        source: where it comes from (`train.log:12`, a tool's name); untrusted too, shown on one line.
    """
    name = harmless(source).replace("\n", "\\n").replace("\r", "")
    if len(name) > SOURCE_CAP:
        name = name[: SOURCE_CAP // 2] + "..." + name[-SOURCE_CAP // 2 :]
    return f"{OPEN}data {name}{SHUT}\n{harmless(text)}\n{OPEN}/data{SHUT}"


def _spelt(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode()


def _bare(text: str) -> str:
    """Without the breaks: a quotation may begin or end within what told them."""
    return " ".join(_BROKEN.sub(r"\1", harmless(text)).split())
