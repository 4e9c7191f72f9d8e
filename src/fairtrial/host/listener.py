"""A unix socket that waits for callers: made by us, served by a program that gets its descriptor."""

import socket
from pathlib import Path
from typing import Final

__all__ = ["listen_unix"]

_BACKLOG: Final = 128


def listen_unix(path: Path) -> int:
    """Make a socket that everybody who reaches its path may call; return its descriptor.

    Raises:
        OSError: The path exists, or is longer than 107 bytes.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener.detach()
