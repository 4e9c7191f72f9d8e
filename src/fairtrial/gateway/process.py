"""`fairtrial gateway` (hidden): one gateway in a process of its own, from its settings line to the end of its input."""

import gc
import json
import os
import resource
import sys
from typing import Final

from fairtrial.errors import FairtrialError, UsageError
from fairtrial.gateway.control import MAX_LINE_BYTES
from fairtrial.gateway.server import Gateway
from fairtrial.gateway.settings import GatewaySettings, parse_settings, take_key
from fairtrial.host.life import guard_server
from fairtrial.host.secret import hide_memory
from fairtrial.host.signals import StopRequest, stop_requests
from fairtrial.wire.loop import Bell, run_until_done, watch_fd

__all__ = ["READY_SCHEMA", "serve"]

READY_SCHEMA: Final = "gateway-ready/1"
_STDIN, _STDOUT = 0, 1
_END_S: Final = 5.0
"""How long the end may take in order."""

_FOR_EVER_S: Final = 3600.0


def serve() -> int:
    """Serve until the end of input, TERM or INT; return the exit code."""
    with stop_requests() as stop:
        try:
            guard_server(_STDIN, grace_s=_END_S)
            hide_memory()
            _raise_descriptor_limit()
            settings = parse_settings(_read_line())
            keys = {upstream.name: take_key(upstream) for upstream in settings.upstreams}
            run_until_done(lambda: _serve(settings, keys, stop))
        except FairtrialError as error:
            _say({"error": str(error)})
            return error.exit_code
    return 0


def _raise_descriptor_limit() -> None:
    """Each stream takes two descriptors, and the usual soft limit is meant for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _read_line() -> bytes:
    """Read the settings line byte by byte: what follows it is not ours to take.

    Raises:
        UsageError: There is none.
    """
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES:
        data = os.read(_STDIN, 1)
        if not data:
            raise UsageError("gateway: no settings line on standard input")
        line += data
    return line


def _say(value: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def _serve(settings: GatewaySettings, keys: dict[str, str], stop: StopRequest) -> None:
    gateway = Gateway(settings, keys)
    ended = Bell()
    try:
        await gateway.start()
        gc.freeze()  # the table of prices lives as long as we do; looking through it again and again stops every stream
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            ended.ring()

        watch_fd(stop.fileno(), end)
        watch_fd(_STDIN, lambda: end() if not os.read(_STDIN, 4096) else None)
        _say({"schema": READY_SCHEMA, "control": str(gateway.control), "pid": os.getpid()})
        while not is_over:
            await ended.wait(_FOR_EVER_S)
    finally:
        await gateway.stop()
