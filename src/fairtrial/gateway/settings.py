"""What a gateway is told when it starts: one JSON line on standard input. No key is in it, only where one is found."""

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from fairtrial.errors import UsageError
from fairtrial.host.secret import take_variable
from fairtrial.store.redact import MIN_SECRET_CHARACTERS

__all__ = ["GatewaySettings", "UpstreamSettings", "parse_settings", "render_settings", "take_key"]

_MAX_KEY_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """A provider.

    Attributes:
        name: What trials call it.
        url: `https://host[:port][/prefix]`; a dialect's own path follows the prefix.
        key_variable: Environment variable of the gateway that holds its key; or
        key_file: absolute path of a file that holds nothing else; or neither, for a server that wants no key.
        ca_file: Certificates to trust instead of the system's, or None.
    """

    name: str
    url: str
    key_variable: str | None = None
    key_file: str | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """One gateway.

    Attributes:
        directory: Absolute path of the directory that it makes for its sockets, and removes; at most 80 bytes.
        upstreams: Providers; none for scripts and recordings alone.
        probe_s: Seconds after which a probe of a provider that is down counts as one more failure.
        max_refused: Requests of one trial that are refused, or answered by the gateway itself, and written down; who
            asks for more is turned away, and its budget is spent.
    """

    directory: str
    upstreams: tuple[UpstreamSettings, ...] = ()
    probe_s: float = 15.0
    max_refused: int = 10_000


@cache
def _adapter() -> TypeAdapter[GatewaySettings]:
    return TypeAdapter(GatewaySettings)


def render_settings(settings: GatewaySettings) -> bytes:
    """Return the settings as one line with its newline."""
    return json.dumps(asdict(settings), separators=(",", ":")).encode() + b"\n"


def parse_settings(line: bytes) -> GatewaySettings:
    """Parse what `render_settings` wrote.

    Raises:
        UsageError: It is something else, or a value is wrong.
    """
    try:
        settings = _adapter().validate_json(line, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"gateway settings: {where}: {first['msg']}") from error
    if not Path(settings.directory).is_absolute() or len(os.fsencode(settings.directory)) > 80:
        raise UsageError(f"gateway settings: directory {settings.directory!r} is no absolute path of at most 80 bytes")
    names = [upstream.name for upstream in settings.upstreams]
    if len(set(names)) != len(names):
        raise UsageError(f"gateway settings: two upstreams of one name in {', '.join(names)}; name each once")
    return settings


def take_key(settings: UpstreamSettings) -> str:
    """Return the upstream's key, and leave no copy in the environment; "" where it wants none.

    Raises:
        UsageError: The key is not where it should be, or is no key.
    """
    if settings.key_variable is not None:
        where = f"variable {settings.key_variable}"
        key = take_variable(settings.key_variable)
        if key is None:
            raise UsageError(f"upstream {settings.name}: {where} is not set; set it, or name a file that holds it")
    elif settings.key_file is not None:
        where = f"file {settings.key_file}"
        try:
            with Path(settings.key_file).open("rb") as file:
                key = file.read(_MAX_KEY_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"upstream {settings.name}: {where}: {error}; make it readable, with the key alone"
            ) from error
    else:
        return ""
    # A header is made of it: anything else would let a key file write headers.
    if len(key) < MIN_SECRET_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"upstream {settings.name}: {where} holds no key of {MIN_SECRET_CHARACTERS} or more characters"
        )
    return key
