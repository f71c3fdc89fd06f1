"""Time stamps: read in their usual shapes, compared only where that means something."""

from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.clocks import earlier, from_epoch, stamp_of


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("2024-06-06 20:17:53,095 WARNING x", "date"),
        ("[2024-04-18 15:55:06] x", "date"),
        ("2024-01-02T03:04:05.123Z x", "date"),
        ("[rank1]:[E526 11:42:19.204448 P.cpp:632] x", "day"),
        ("I1129 16:13:38.05 8120 net.cpp:608] x", "day"),
        ("Oct 18 08:02:31 node23 systemd[1]: x", "day"),
        ("INFO 09-20 14:02:30 [a.py:1] x", "day"),
        ("[ 1842.901233] nvidia", "uptime"),
        ("14:05:16 step 12", "clock"),
        ("I 01:24:10 launcher] x", "clock"),
    ],
)
def test_usual_shapes(line: str, kind: str) -> None:
    found = stamp_of(line)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    "line", ["31%|### | 1551/5000 [41:20<1:31:40,  1.59s/it]", "loss: 0.5", "", "127.0.0.1:51010", "99:99:99"]
)
def test_what_is_no_stamp(line: str) -> None:
    assert stamp_of(line) is None


def test_dates_order_across_shapes() -> None:
    assert earlier(stamp_of("2024-04-15 21:14:02"), stamp_of("E0415 21:17:08.99 1 a.cpp:5]")) is True
    assert earlier(stamp_of("2024-01-02 03:04:05+02:00"), stamp_of("2024-01-02 02:04:05Z")) is True


def test_what_cannot_be_compared_is_unknown() -> None:
    assert earlier(stamp_of("14:05:16 a"), stamp_of("2024-01-02 03:04:05 b")) is None
    assert earlier(stamp_of("[ 12.345678] a"), stamp_of("2024-01-02 03:04:05 b")) is None
    assert earlier(None, stamp_of("14:05:16 a")) is None


def test_epoch_seconds() -> None:
    found = from_epoch(1795174046)
    assert found is not None and found.kind == "date"
    assert from_epoch(1e30) is None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)), st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1))
)
def test_order_of_dates_is_the_order_of_time(one: datetime, other: datetime) -> None:
    one, other = one.replace(microsecond=0), other.replace(microsecond=0)
    told = earlier(stamp_of(f"[{one:%Y-%m-%d %H:%M:%S}] x"), stamp_of(f"{other:%Y/%m/%d %H:%M:%S} y"))
    assert told == (None if one == other else one < other)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=300))
def test_reading_never_fails(line: str) -> None:
    stamp_of(line)


def test_the_level_of_a_glog_line_is_no_part_of_its_time():
    found = stamp_of("[rank1]:E1122 19:00:46.5 77 torch/x.py:3] failed")
    assert found is not None and found.text == "11-22 19:00:46.5"
    again = stamp_of(found.text)
    assert again is not None and again.value == found.value
