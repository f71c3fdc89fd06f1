"""`nvidia-smi -q -x`: readings of an XML capture, with the line each value stands on.

Expat without entities: a document that declares one is refused, so that nothing can be expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.parsers import expat

from .files import Line
from .smi import Reading

DEPTH, LIMIT = 24, 4 << 20  # elements within each other; bytes of one document

# the end of an element's path below <gpu> -> field of `nvidia-smi --query-gpu`
_FIELDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), field)
    for pattern, field in (
        (r"^product_name$", "name"),
        (r"^fb_memory_usage/(total|used|free|reserved)$", r"memory.\1"),
        (r"^utilization/gpu_util$", "utilization.gpu"),
        (r"^temperature/gpu_temp$", "temperature.gpu"),
        (r"power_readings/(?:instant_)?power_draw$", "power.draw"),
        (r"power_readings/(?:enforced_power_limit|current_power_limit)$", "enforced.power.limit"),
        (r"power_readings/default_power_limit$", "power.default_limit"),
        (r"^clocks/sm_clock$", "clocks.current.sm"),
        (r"^max_clocks/sm_clock$", "clocks.max.sm"),
        (r"^clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reason_(\w+)$", r"clocks_event_reasons.\1"),
        (r"^ecc_errors/(volatile|aggregate)/.*uncorrectable\w*$", r"ecc.errors.uncorrected.\1.total"),
        (r"^ecc_errors/(volatile|aggregate)/double_bit/total$", r"ecc.errors.uncorrected.\1.total"),
        (r"^remapped_rows/remapped_row_unc$", "remapped_rows.uncorrectable"),
        (r"^remapped_rows/remapped_row_(pending|failure)$", r"remapped_rows.\1"),
        (r"^retired_pages/pending_(?:retirement|blacklist)$", "retired_pages.pending"),
        (r"link_widths/(max|current)_link_width$", r"pcie.link.width.\1"),
        (r"pcie_gen/(max|current)_link_gen$", r"pcie.link.gen.\1"),
        (r"^gpu_recovery_action$", "gpu_recovery_action"),
        (r"^fabric/(state|status)$", r"fabric.\1"),
        (r"^mig_mode/current_mig$", "mig.mode.current"),
        (r"^persistence_mode$", "persistence_mode"),
    )
)


def is_xml(lines: Iterable[Line]) -> bool:
    """Whether these lines are such a capture."""
    head = " ".join(line.text for line, _ in zip(lines, range(8), strict=False))
    return "<nvidia_smi_log" in head or ("nvidia_smi_log" in head and "<?xml" in head)


def xml_readings(lines: list[Line]) -> tuple[list[Reading], str]:
    """Readings, and why reading ended early (empty where the whole document was read)."""
    reader = _Reader({line.number: line for line in lines})
    start = next((i for i, line in enumerate(lines) if line.text.lstrip().startswith("<")), 0)
    reader.shift = lines[start].number - 1 if lines else 0
    document = b"\n".join(line.data for line in lines[start:])
    if len(document) > LIMIT:
        return [], f"XML of more than {LIMIT >> 20} MiB"
    try:
        reader.parser.Parse(document, True)
    except expat.ExpatError as e:
        return reader.found, f"broken XML: {e}"
    except _Refused as e:
        return reader.found, str(e)
    return reader.found, ""


class _Refused(Exception):
    """The document asks for something that a capture never needs."""


class _Reader:
    def __init__(self, lines: dict[int, Line]) -> None:
        self.lines, self.found, self.shift = lines, list[Reading](), 0
        self.gpu, self.path, self.text = -1, list[str](), list[str]()
        self.process: dict[str, str] = {}
        self.process_line: Line | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self.text.append
        self.parser.EntityDeclHandler = self._entity

    def _entity(self, *_: object) -> None:
        raise _Refused("the XML declares entities: refused")

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        if len(self.path) >= DEPTH:
            raise _Refused(f"XML nested deeper than {DEPTH}: refused")
        if name == "gpu" and len(self.path) == 1:
            self.gpu += 1
        if name == "process_info":
            self.process = {}
        self.path.append(name)
        self.text.clear()

    def _end(self, name: str) -> None:
        value = "".join(self.text).strip()
        below = "/".join(self.path[2:]) if self.path[1:2] == ["gpu"] else ""
        self.path.pop()
        self.text.clear()
        line = self.lines.get(self.parser.CurrentLineNumber + self.shift)
        if line is None or not below or "mig_devices" in below:
            return
        if name == "process_info":
            used = self.process.get("used_memory", "?").replace("MiB", "").strip()
            what = f"{self.process.get('pid', '?')} {self.process.get('process_name', '?')} {used} MiB"
            self.found.append(Reading(self.gpu, "process", what, self.process_line or line))
        elif below.startswith("processes/"):
            self.process[name] = value
            self.process_line = line if name == "pid" else self.process_line
        elif value:
            self._leaf(below, value, line)

    def _leaf(self, below: str, value: str, line: Line) -> None:
        for pattern, field in _FIELDS:
            if m := pattern.search(below):
                self.found.append(Reading(self.gpu, m.expand(field), value, line))
                return
