"""Which interface leads to the other rank: shipped to a node's Python ahead of the all-reduce.

Gloo listens where the node's own name leads. On many systems that is 127.0.1.1, or nowhere, and then no pair of sound
nodes ever meets. Standard library alone; what the user set is kept.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

VARIABLE = "GLOO_SOCKET_IFNAME"
_ADDRESS_OF = 0x8915  # SIOCGIFADDR


def interface(peer: str) -> str:
    """The interface whose address the kernel would use towards the peer; empty where none is found (IPv6 alone)."""
    try:
        found = socket.getaddrinfo(peer, 9, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(found[0][4])  # sends nothing
        except OSError:
            return ""
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                said = fcntl.ioctl(probe.fileno(), _ADDRESS_OF, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no such address
            if socket.inet_ntoa(said[20:24]) == own:
                return name
    return ""


def choose() -> None:
    """Tell Gloo, unless it is told already."""
    if VARIABLE not in os.environ and (name := interface(os.environ.get("PEER_ADDR", ""))):
        os.environ[VARIABLE] = name
