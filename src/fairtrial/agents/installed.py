"""Finding an agent's program on this host, and what of the host it needs inside a sandbox."""

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairtrial.agents.sessions import SYSTEM_PATH
from fairtrial.host.process import run as run_process
from fairtrial.model.agent import AgentProbe, Installation
from fairtrial.model.sandbox import Bind

__all__ = ["asked_version", "bind_beside_system", "found", "locate", "missing"]

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")
_ASK_S: Final = 240.0  # a cold start of the larger ones reads 400 MB from disk; on a busy machine it took more than 60
_PROVIDED: Final = ("/usr", "/bin", "/lib", "/lib64", "/sbin")


def locate(name: str) -> Path | None:
    """The program of this name on our own PATH, links resolved; None when there is none."""
    program = shutil.which(name)
    return None if program is None else Path(program).resolve()


def asked_version(argv: Sequence[str]) -> str | None:
    """The version that a program tells of itself; None when it fails or tells none."""
    with TemporaryDirectory() as home:  # some write there even for this; as root also into a home that is not there
        env = {"PATH": SYSTEM_PATH, "HOME": home, "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "CI": "1"}
        result = run_process(argv, env=env, timeout_s=_ASK_S, capture_bytes=4096)
    told = _VERSION.search(result.stdout.head.decode("utf-8", "replace"))
    return told[0] if result.ok and told is not None else None


def bind_beside_system(path: Path, target: str | None = None) -> tuple[Bind, ...]:
    """A mount of a host path; none where the sandbox has it already and it may stay where it is."""
    if target is None and any(path.is_relative_to(each) for each in _PROVIDED):
        return ()
    return (Bind(source=path, target=target or str(path)),)


def found(binary: Path, version: str, tested_version: str, installation: Installation) -> AgentProbe:
    """An agent that can be used; another version than the tested one is said, not refused."""
    with binary.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    details = {"binary_sha256": digest}
    if version != tested_version:
        details["untested"] = f"this is {version}; what is known of it was measured with {tested_version}"
    return AgentProbe(binary=str(binary), version=version, details=details, installation=installation, missing=None)


def missing(reason: str, install: str) -> AgentProbe:
    """An agent that cannot be used."""
    what = f"{reason}; install it: {install}"
    return AgentProbe(binary=None, version=None, details={}, installation=None, missing=what)
