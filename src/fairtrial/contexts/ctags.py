"""`ctags`: the symbols of a tree, indexed by Universal Ctags, served by a small server of ours on the package `mcp`.

Facts it stands on (Universal Ctags 5.9.0, mcp 2.3.0): `--options=NONE` must come first, or a `.ctags.d` of the tree is
read; JSON output is there only where it was built with libjansson; sorted output without pseudo tags is the same bytes
for the same tree. The server runs on the Python that runs fairtrial, with that one's packages, since `mcp` has parts
that are compiled for it.
"""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.host.process import run
from fairtrial.model.context import CONTEXT_ROOT, INDEX, ContextCommand, ContextInstallation, ContextProbe
from fairtrial.model.sandbox import Bind
from fairtrial.payload import __path__ as payload_path

__all__ = ["Ctags"]

SERVER: Final = f"{CONTEXT_ROOT}/ctags_server.py"
PACKAGES: Final = f"{CONTEXT_ROOT}/packages"
TAGS: Final = f"{INDEX}/tags.jsonl"
BUILD_S: Final = 900.0
_ASK_S: Final = 20.0
_VERSION: Final = re.compile(r"Universal Ctags (\d+\.\d+\.\d+)")
_FLAGS: Final = (
    "--options=NONE",
    "--quiet=yes",
    "--output-format=json",
    "--fields=NFPnSKsZ",
    "--extras=-p",
    "--pseudo-tags=",
    "--sort=yes",
    "--links=no",
    "--exclude=.git",
)


class Ctags:
    """Universal Ctags and `payload/ctags_server.py`."""

    tested_version: ClassVar[str] = "Universal Ctags 5.9.0, mcp 2.3.0"
    install: ClassVar[str] = "apt-get install universal-ctags && pip install 'fairtrial[contexts]'"
    licence: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ("find_symbol", "list_symbols", "search_symbols")
    mutating: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()
    places: ClassVar[Mapping[str, bytes]] = {}

    def probe(self) -> ContextProbe:
        """Find `ctags` and `mcp`."""
        program = shutil.which("ctags")
        if program is None:
            return self._missing("no program 'ctags' on PATH")
        binary = Path(program).resolve()
        said = run([str(binary), "--version"], env={"LC_ALL": "C"}, timeout_s=_ASK_S, capture_bytes=4096)
        told = _VERSION.search(said.stdout.head.decode("utf-8", "replace"))
        if told is None or b"+json" not in said.stdout.head:
            return self._missing(f"{binary} is no Universal Ctags with JSON output")
        spec = find_spec("mcp")
        try:
            mcp = version("mcp")
        except PackageNotFoundError:
            mcp = None
        if spec is None or spec.origin is None or mcp is None:
            return self._missing(f"{sys.executable} has no package 'mcp'")
        packages = Path(spec.origin).resolve().parent.parent
        python = Path(sys.executable).resolve()
        base = () if python.is_relative_to("/usr") else (Path(sys.base_prefix).resolve(),)
        ctags = () if binary.is_relative_to("/usr") else (binary,)
        installation = ContextInstallation(
            programs={"ctags": (str(binary),), "server": (str(python), "-S", "-s", "-P", SERVER)},
            binds=(
                *(Bind(source=path, target=str(path)) for path in (*base, *ctags)),
                Bind(source=packages, target=PACKAGES),
                Bind(source=Path(payload_path[0]).resolve() / "ctags_server.py", target=SERVER),
            ),
        )
        found = f"Universal Ctags {told[1]}, mcp {mcp}"
        details = {} if found == self.tested_version else {"untested": f"tested with {self.tested_version}"}
        return ContextProbe(version=found, details=details, installation=installation, missing=None)

    def build(self, installation: ContextInstallation) -> ContextCommand:
        """One run over the whole tree; what the tree says of ctags is not read."""
        argv = (*installation.programs["ctags"], *_FLAGS, "-f", TAGS, "-R", ".")
        return ContextCommand(argv=argv, wall_s=BUILD_S)

    def prove(self, installation: ContextInstallation, markers: Sequence[str]) -> ContextCommand:
        """Every entry with its values as they are, not as JSON writes them."""
        return ContextCommand(argv=(*installation.programs["server"], "prove", TAGS, *markers))

    def serve(self, installation: ContextInstallation) -> ContextCommand:
        """The whole index in memory, three ways to ask for a symbol."""
        return ContextCommand(
            argv=(*installation.programs["server"], "serve", TAGS),
            env={"PYTHONPATH": PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def _missing(self, reason: str) -> ContextProbe:
        what = f"{reason}; install it: {self.install}"
        return ContextProbe(version=None, details={}, installation=None, missing=what)
