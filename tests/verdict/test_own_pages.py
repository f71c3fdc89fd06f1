"""A page of the users' own folder: a line of it is believed, whatever the reader makes of it."""

from __future__ import annotations

import pytest
from traindoctor.agent.core.playbook import parse
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.verdict.planner import INSUFFICIENT, verdict
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import rank
from traindoctor.agent.verdict.steer import Sounds

PAGE = parse("""---
cause: dist.ib_link
title: The blue switch flaps
signatures:
  - {pattern: 'blue-switch: port \\d+ flapped', weight: normal, matches: ['blue-switch: port 12 flapped']}
---
Body.
""", "dist/blue_switch", "a.md")  # fmt: skip


@pytest.mark.parametrize(("own", "said"), [(True, "dist.ib_link"), (False, INSUFFICIENT)])
def test_a_line_of_a_page_that_was_written_for_this_site_is_believed(own: bool, said: str):
    seen = Evidence(key=PAGE.key, value=1, text="kernel: blue-switch: port 12 flapped", file="a.log", line=1, id="E1")
    page = PAGE.model_copy(update={"own": own})
    assert verdict(rank([page], Facts.of([seen]), Sounds({"dist.ib_link": -1.0}))) == said
