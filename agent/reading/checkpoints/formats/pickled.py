"""A pickle read as a list of instructions for building data. Nothing is imported, called or executed.

Every opcode of protocols 0 to 5 is followed; a call becomes a note of the call (`symbols`), or what `rebuilt` knows
it to make. Time, memory and depth are bounded by counts: an instruction that makes something is paid for.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from ....core import deadline
from ..parts import Damaged, Window
from .rebuilt import called, persisted, set_state
from .symbols import Blob, Built, Global, Storage, as_key

# ----------
# The bytes of a pickle as a stream: taken in order, read in blocks, and what they turn into is paid for.


BUDGET = 160 << 20  # bytes of Python objects that a pickle may turn into, roughly
WORD_LIMIT = 1 << 16  # bytes of a line of the text protocol
_BLOCK = 1 << 18


class Instructions:
    """The bytes from a place in a window on."""

    def __init__(self, window: Window, at: int) -> None:
        self._window, self._base = window, at
        self._buffer, self._at = b"", 0
        self._spent = 0

    def _bad(self, why: str) -> NoReturn:
        raise Damaged("pickle_invalid", f"the pickle {why}, at its byte {self._base + self._at}")

    def _more(self, count: int) -> None:
        """Have at least `count` bytes after the current place."""
        place = self._base + self._at
        left = self._window.size - place
        if count > left:
            raise Damaged("truncated", f"the pickle ends at its byte {self._window.size} in the middle")
        self._buffer = self._window.read(place, min(left, max(count, _BLOCK)))
        self._base, self._at = place, 0

    def _take(self, count: int) -> bytes:
        at = self._at
        if at + count > len(self._buffer):
            if count > _BLOCK:
                self._pay(count)
            self._more(count)
            at = 0
        self._at = at + count
        return self._buffer[at : at + count]

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> bytes:
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            self._more(min(WORD_LIMIT, self._window.size - self._base - self._at))
            end = self._buffer.find(b"\n")
            if end < 0:
                self._bad("has a line without end")
        line = self._buffer[self._at : end]
        self._at = end + 1
        return line

    def _pay(self, count: int) -> None:
        self._spent += count
        if self._spent > BUDGET:
            raise Damaged("too_large", "the pickle turns into more objects than are held here")


# ----------

OPERATIONS = 8_000_000
LONG_LIMIT = 1024  # bytes of an integer
LAZY = 1 << 12  # from so many bytes on, a bytes object stays in the file
_LOOKUP = "builtins.getattr"


class Pickle(Instructions):
    """One pickle from the start of a window to its STOP.

    Attributes:
        globals: every global that is named, in order, without repeats.
        end: place after STOP in the window, once `read` has returned.
        twice: keys that were set twice in one dict.
    """

    def __init__(self, window: Window, at: int = 0) -> None:
        super().__init__(window, at)
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self.globals: dict[str, None] = {}
        self._lookups = [0, 0]  # of attributes of anything, and of classes that are known to be data
        self.storages: dict[str, Storage] = {}
        self.twice: list[str] = []
        self.end = at

    def read(self) -> Any:
        """What the pickle describes.

        Raises:
            Damaged: it is cut, malformed, or beyond the limits.
        """
        try:
            return self._run()
        except IndexError:
            self._bad("takes more than was put down")
        except (TypeError, ValueError, KeyError, OverflowError, RecursionError, AttributeError, struct.error) as e:
            self._bad(f"does not make sense ({type(e).__name__})")

    def _run(self) -> Any:
        operations = 0
        while True:
            if self._at >= len(self._buffer):
                self._more(1)
            code = self._buffer[self._at]
            self._at += 1
            if code == 0x2E:  # STOP
                self.end = self._base + self._at
                if self._lookups[True] and not self._lookups[False]:
                    self.globals.pop(_LOOKUP, None)
                return self._stack.pop()
            follow = _FOLLOW.get(code)
            if follow is None:
                self._bad(f"has the unknown opcode 0x{code:02x}")
            follow(self)
            operations += 1
            if not operations & 0xFFFF:
                deadline.check()
                if operations > OPERATIONS:
                    raise Damaged("too_large", f"a pickle of more than {OPERATIONS} instructions")

    # what lies on the stack

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _marked(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _mark(self) -> None:
        self._pay(64)
        self._marks.append(self._stack)
        self._stack = []

    def _pop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._marked()

    def _text(self, count: int) -> None:
        self._pay(count + 56)
        self._push(self._take(count).decode("utf-8", "surrogatepass"))

    def _bytes(self, count: int) -> None:
        if count < LAZY:
            self._pay(count + 40)
            self._push(self._take(count))
            return
        place = self._base + self._at
        if place + count > self._window.size:
            raise Damaged("truncated", f"the pickle ends at its byte {self._window.size} in the middle")
        self._pay(64)
        self._push(Blob(self._window.start + place, count))
        self._at += count
        if self._at > len(self._buffer):
            self._buffer, self._base, self._at = b"", place + count, 0

    def _old_text(self, count: int) -> None:
        self._pay(count + 56)
        self._push(self._take(count).decode("latin1"))

    def _quoted(self) -> None:
        line = self._line()
        if len(line) < 2 or line[:1] not in b"'\"" or line[:1] != line[-1:]:
            self._bad("has text without quotes")
        self._pay(len(line) + 56)
        self._push(codecs.escape_decode(line[1:-1])[0].decode("latin1"))  # type: ignore[attr-defined]

    def _unicode(self) -> None:
        line = self._line()
        self._pay(len(line) + 56)
        self._push(line.decode("raw-unicode-escape"))

    def _integer(self, line: bytes) -> int:
        if len(line) > LONG_LIMIT:
            raise Damaged("too_large", f"the pickle holds an integer of {len(line)} digits")
        self._pay(32)
        return int(line)

    def _int(self) -> None:
        line = self._line()
        self._push({b"00": False, b"01": True}[line] if line in (b"00", b"01") else self._integer(line))

    def _long(self, count: int) -> None:
        if not 0 <= count <= LONG_LIMIT:
            raise Damaged("too_large", f"the pickle holds an integer of {count} bytes")
        self._pay(count + 32)
        self._push(int.from_bytes(self._take(count), "little", signed=True))

    def _signed(self) -> None:
        self._pay(32)
        self._push(int.from_bytes(self._take(4), "little", signed=True))

    def _make(self, value: Any) -> None:
        self._pay(64)
        self._push(value)

    def _tuple(self, count: int) -> None:
        self._pay(40 + 8 * count)
        items = tuple(self._stack[-count:])
        if len(items) < count:
            self._bad("takes more than was put down")
        self._stack[-count:] = [items]

    def _marked_tuple(self) -> None:
        items = self._marked()
        self._pay(40 + 8 * len(items))
        self._push(tuple(items))

    def _marked_list(self) -> None:
        items = self._marked()
        self._pay(56 + 8 * len(items))
        self._push(items)

    def _marked_dict(self) -> None:
        items = self._marked()
        made: dict[Any, Any] = {}
        self._put_pairs(made, items)
        self._push(made)

    # memo

    def _keep(self, number: int) -> None:
        self._pay(100)
        self._memo[number] = self._stack[-1]

    def _get(self, number: int) -> None:
        if number not in self._memo:
            self._bad(f"fetches {number} from its memo, where nothing was put")
        self._stack.append(self._memo[number])

    # containers

    def _append(self) -> None:
        self._put_items([self._stack.pop()])

    def _appends(self) -> None:
        self._put_items(self._marked())

    def _put_items(self, items: list[Any]) -> None:
        into = self._stack[-1]
        self._pay(8 * len(items))
        if type(into) is list:
            into.extend(items)
        elif type(into) is Built:
            if into.items is None:
                into.items = []
            into.items.extend(items)
        else:
            self._bad("appends to what is no list")

    def _set_item(self) -> None:
        value = self._stack.pop()
        self._set_pairs([self._stack.pop(), value])

    def _set_pairs(self, items: list[Any]) -> None:
        into = self._stack[-1]
        if type(into) is Built:
            into.entries = {} if into.entries is None else into.entries
            into = into.entries
        if type(into) is not dict:
            self._bad("sets a key of what is no dict")
        self._put_pairs(into, items)

    def _put_pairs(self, into: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            self._bad("has a key without value")
        self._pay(50 * len(items) + 64)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is not str:
                key = as_key(key)
            if key in into and len(self.twice) < 8:
                self.twice.append(str(key)[:80])
            into[key] = value

    # calls that never happen

    def _global(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str or len(module) + len(name) > 1000:
            self._bad("names a global by something that is no text")
        self._pay(120 + len(module) + len(name))
        self.globals[f"{module}.{name}"] = None
        self._push(Global(module, name))

    def _stack_global(self) -> None:
        name = self._stack.pop()
        self._global(self._stack.pop(), name)

    def _reduce(self) -> None:
        args = self._stack.pop()
        self._call(self._stack.pop(), args)

    def _call(self, what: Any, args: Any) -> None:
        if type(args) is not tuple:
            self._bad("calls something with what is no tuple")
        made: Any = called(what, args)
        if type(made) is Global:  # members of an enumeration are looked up so
            self.globals[made.full] = None
            self._lookups[True] += 1
        elif type(made) is Built and made.name == _LOOKUP:
            self._lookups[False] += 1
        copied = len(made) if isinstance(made, bytes | str) else 64 * len(made) if isinstance(made, dict) else 0
        self._pay(160 + copied)
        self._push(made)

    def _new_keywords(self) -> None:
        keywords = self._stack.pop()
        args = self._stack.pop()
        self._call(self._stack.pop(), (*args, keywords) if keywords else args)

    def _instance(self) -> None:
        module, name = self._line().decode(), self._line().decode()
        args = tuple(self._marked())
        self._global(module, name)
        self._call(self._stack.pop(), args)

    def _object(self) -> None:
        items = self._marked()
        self._call(items[0], tuple(items[1:]))

    def _build(self) -> None:
        state = self._stack.pop()
        self._stack[-1] = set_state(self._stack[-1], state)

    def _persistent(self, identity: Any) -> None:
        self._pay(160)
        self._push(persisted(identity, self.storages))

    def _extension(self) -> None:
        self._bad("uses the extension registry of the process that loads it")

    def _version(self) -> None:
        if (version := self._number(1)) > 5:
            self._bad(f"is of the unknown protocol {version}")

    def _frame(self) -> None:
        if self._number(8) > self._window.size - self._base - self._at:
            raise Damaged("truncated", f"the pickle ends at its byte {self._window.size}, inside of a frame")

    def _buffer_out_of_band(self) -> None:
        self._bad("needs buffers that are kept elsewhere")


_FOLLOW: dict[int, Callable[[Pickle], None]] = {
    ord(code) if isinstance(code, str) else code: follow
    for code, follow in {
        "(": Pickle._mark, "0": Pickle._pop, "1": lambda p: p._marked() and None,
        "2": lambda p: p._push(p._stack[-1]), "N": lambda p: p._push(None),
        0x88: lambda p: p._push(True), 0x89: lambda p: p._push(False),
        "F": lambda p: p._make(float(p._line())), "I": Pickle._int, "J": Pickle._signed,
        "K": lambda p: p._push(p._number(1)), "M": lambda p: p._make(p._number(2)),
        "L": lambda p: p._push(p._integer(p._line().rstrip(b"L"))),
        "G": lambda p: p._make(struct.unpack(">d", p._take(8))[0]),
        0x8A: lambda p: p._long(p._number(1)), 0x8B: lambda p: p._long(p._number(4)),
        "S": Pickle._quoted, "T": lambda p: p._old_text(p._number(4)), "U": lambda p: p._old_text(p._number(1)),
        "V": Pickle._unicode, "X": lambda p: p._text(p._number(4)), 0x8C: lambda p: p._text(p._number(1)),
        0x8D: lambda p: p._text(p._number(8)),
        "B": lambda p: p._bytes(p._number(4)), "C": lambda p: p._bytes(p._number(1)),
        0x8E: lambda p: p._bytes(p._number(8)), 0x96: lambda p: p._bytes(p._number(8)),
        "]": lambda p: p._make([]), "}": lambda p: p._make({}), ")": lambda p: p._push(()),
        0x8F: lambda p: p._make([]), 0x91: Pickle._marked_list,
        "l": Pickle._marked_list, "d": Pickle._marked_dict, "t": Pickle._marked_tuple,
        0x85: lambda p: p._tuple(1), 0x86: lambda p: p._tuple(2), 0x87: lambda p: p._tuple(3),
        "a": Pickle._append, "e": Pickle._appends, 0x90: Pickle._appends,
        "s": Pickle._set_item, "u": lambda p: p._set_pairs(p._marked()),
        "p": lambda p: p._keep(p._integer(p._line())), "q": lambda p: p._keep(p._number(1)),
        "r": lambda p: p._keep(p._number(4)), 0x94: lambda p: p._keep(len(p._memo)),
        "g": lambda p: p._get(p._integer(p._line())), "h": lambda p: p._get(p._number(1)),
        "j": lambda p: p._get(p._number(4)),
        "c": lambda p: p._global(p._line().decode(), p._line().decode()), 0x93: Pickle._stack_global,
        "R": Pickle._reduce, 0x81: Pickle._reduce, 0x92: Pickle._new_keywords,
        "i": Pickle._instance, "o": Pickle._object, "b": Pickle._build,
        "P": lambda p: p._persistent(p._line().decode("latin1")), "Q": lambda p: p._persistent(p._stack.pop()),
        0x82: Pickle._extension, 0x83: Pickle._extension, 0x84: Pickle._extension,
        0x80: Pickle._version, 0x95: Pickle._frame,
        0x97: Pickle._buffer_out_of_band, 0x98: lambda p: None,
    }.items()
}  # fmt: skip
