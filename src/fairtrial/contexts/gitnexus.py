"""`gitnexus`: the graph of a tree's symbols and how they depend on each other, by the npm package GitNexus.

Its licence, PolyForm Noncommercial 1.0.0, forbids commercial use; fairtrial has no part of it and does not install it.

Facts it stands on (gitnexus 1.6.12): `GITNEXUS_STORAGE_PATH` puts the index elsewhere than in the tree; the database
can be opened where it is read-only; it refuses Node older than 22.18; keyword search needs an extension of the database
that is downloaded, so without network `query` answers by nothing and says so; an index holds when it was made, so that
two of one tree differ. Its server finds an index by a registry in the home directory.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.host.process import run
from fairtrial.model.context import CONTEXT_ROOT, INDEX, ContextCommand, ContextInstallation, ContextProbe
from fairtrial.model.sandbox import WORKSPACE, Bind
from fairtrial.payload import __path__ as payload_path
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["GitNexus"]

NODE: Final = f"{CONTEXT_ROOT}/node"
MODULES: Final = f"{CONTEXT_ROOT}/node_modules"
SCRIPT: Final = f"{CONTEXT_ROOT}/gitnexus_index.py"
BUILD_S: Final = 3600.0
PROVE_S: Final = 2 * 300.0
VERSION: Final = "1.6.12"
OLDEST_NODE: Final = (22, 18)
_ASK_S: Final = 20.0
_NODE_VERSION: Final = re.compile(rb"v((\d+)\.(\d+)\.\d+)\s*")
_OFFLINE: Final = {"GITNEXUS_LBUG_EXTENSION_INSTALL": "never", "GITNEXUS_STORAGE_PATH": INDEX}
# The tree belongs to another user than the one who looks at it, which git would refuse.
_TRUSTED: Final = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": WORKSPACE}
_BUILD: Final = {
    "GITNEXUS_NO_GITIGNORE": "1",
    "GITNEXUS_PARSE_CHUNK_CONCURRENCY": "1",
    "GITNEXUS_WORKER_POOL_SIZE": "1",
    "GITNEXUS_WORKER_READY_TIMEOUT_MS": "120000",
}


class GitNexus:
    """GitNexus on a Node of its own, and `payload/gitnexus_index.py`."""

    tested_version: ClassVar[str] = f"gitnexus {VERSION}, node 22.20.0"
    install: ClassVar[str] = f"npm install gitnexus@{VERSION} node@22, and node_modules/.bin on PATH"
    licence: ClassVar[str] = "its licence (PolyForm Noncommercial 1.0.0) forbids commercial use"
    tools: ClassVar[tuple[str, ...]] = (
        *("api_impact", "check", "context", "detect_changes", "explain", "impact", "list_repos", "pdg_query", "query"),
        *("route_map", "shape_check", "tool_map", "trace"),
    )
    # What its own mode for reading leaves out: `rename` writes files, `group_sync` a registry; the others go with them.
    mutating: ClassVar[tuple[str, ...]] = ("cypher", "group_list", "group_sync", "rename")
    settings: ClassVar[tuple[str, ...]] = (".gitnexus", ".gitnexusignore", ".gitnexusrc")
    # It keeps its directory in the tree out of git, where it has none, and gives up where it cannot.
    places: ClassVar[Mapping[str, bytes]] = {".git/info/exclude": b".gitnexus/\n"}

    def probe(self) -> ContextProbe:
        """Find `gitnexus`, and the Node beside it or on PATH."""
        program = shutil.which("gitnexus")
        if program is None:
            return self._missing("no program 'gitnexus' on PATH")
        cli = Path(program).resolve()
        package = next((each for each in cli.parents if each.parent.name == "node_modules"), None)
        if package is None or package.name != "gitnexus":
            return self._missing(f"{cli} is in no package 'gitnexus' of npm")
        try:
            version = parse_object((package / "package.json").read_bytes()).get("version")
        except (OSError, MalformedJsonError) as problem:
            return self._missing(f"{package}/package.json cannot be read: {problem}")
        if version != VERSION:
            return self._missing(f"{package} is gitnexus {version}, and only {VERSION} is proven")
        node = _find_node(package.parent)
        if node is None:
            return self._missing(f"no Node {'.'.join(map(str, OLDEST_NODE))} or newer beside it or on PATH")
        program_of_node, node_version = node
        installation = ContextInstallation(
            programs={
                "gitnexus": (NODE, f"{MODULES}/{cli.relative_to(package.parent)}"),
                "script": ("/usr/bin/python3", "-I", "-S", SCRIPT),
            },
            binds=(
                Bind(source=program_of_node, target=NODE),
                Bind(source=package.parent, target=MODULES),
                Bind(source=Path(payload_path[0]).resolve() / "gitnexus_index.py", target=SCRIPT),
            ),
        )
        found = f"gitnexus {version}, node {node_version}"
        details = {} if found == self.tested_version else {"untested": f"tested with {self.tested_version}"}
        return ContextProbe(version=found, details=details, installation=installation, missing=None)

    def build(self, installation: ContextInstallation) -> ContextCommand:
        """The whole graph with its dependences, by one worker."""
        argv = (*installation.programs["script"], "build", INDEX, *installation.programs["gitnexus"])
        return ContextCommand(argv=argv, env={**_OFFLINE, **_TRUSTED, **_BUILD}, wall_s=BUILD_S)

    def prove(self, installation: ContextInstallation, markers: Sequence[str]) -> ContextCommand:
        """A query over all nodes and one over all relations."""
        argv = (*installation.programs["script"], "prove", INDEX, *installation.programs["gitnexus"], "--", *markers)
        return ContextCommand(argv=argv, env={**_OFFLINE, **_TRUSTED}, wall_s=PROVE_S)

    def serve(self, installation: ContextInstallation) -> ContextCommand:
        """Its own server, on a registry with this one index."""
        argv = (*installation.programs["script"], "serve", INDEX, *installation.programs["gitnexus"])
        return ContextCommand(argv=argv, env={**_OFFLINE, **_TRUSTED})

    def _missing(self, reason: str) -> ContextProbe:
        what = f"{reason}; install it ({self.licence}): {self.install}"
        return ContextProbe(version=None, details={}, installation=None, missing=what)


def _find_node(modules: Path) -> tuple[Path, str] | None:
    """The first Node that is new enough, and its version: that which npm put beside the package, or that on PATH."""
    for candidate in (modules / ".bin" / "node", shutil.which("node")):
        if candidate is None or not Path(candidate).exists():
            continue
        program = Path(candidate).resolve()
        said = run([str(program), "--version"], env={}, timeout_s=_ASK_S, capture_bytes=100)
        told = _NODE_VERSION.fullmatch(said.stdout.head)
        if told is not None and (int(told[2]), int(told[3])) >= OLDEST_NODE:
            return program, told[1].decode()
    return None
