"""Whether anybody listens where a peer is said to be.

Flight has one type, and no code, for a peer whose process is gone and for one that is only slow to
take a connection. The kernel of its machine tells them apart: a port on which nobody listens
refuses a connection at once, and nothing else does. One whose backlog is full, which is behind a
wall, or whose machine is gone does not answer; one that takes the connection and says nothing is
there.
"""

from __future__ import annotations

import socket

from holdfast.errors import InputError
from holdfast.ports import host_and_port

# A refusal takes as long as the way there and back.
LOOK_SECONDS = 0.5


def nobody_listens(location: str, within_s: float = LOOK_SECONDS) -> bool:
    """Whether a connection to ``grpc://host:port`` is refused, at every address of the host."""
    try:
        host, port = host_and_port(location.partition("://")[2])
        socket.create_connection((host.strip("[]"), port), within_s, all_errors=True).close()
    except ExceptionGroup as failed:
        return all(isinstance(one, ConnectionRefusedError) for one in failed.exceptions)
    except (InputError, OSError):
        return False
    return False
