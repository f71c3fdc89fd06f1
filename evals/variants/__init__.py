"""Incidents made harder on the fly: buried in ordinary lines, without what decides, with hostile text planted.

Each mode takes a case and gives another one whose files lie in a folder of its own; labels and questions stay.
"""

from __future__ import annotations
