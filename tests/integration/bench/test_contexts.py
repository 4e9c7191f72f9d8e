"""Indexes built, proven and served in real sandboxes, by a context that a test makes as good or as bad as it likes."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.index import CONTEXTS, BuiltIndex, FoundContext, Host, build_index
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.bench.tool_server import BRIDGE, OTHER, SOCKET, SOCKET_ROOT, ServerSeen, ToolServer
from fairtrial.errors import HostError, IntegrityError
from fairtrial.host.limits import probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.model.bench import Task
from fairtrial.model.context import INDEX, ContextCommand, ContextInstallation, ContextProbe
from fairtrial.model.sandbox import SandboxSpec, SandboxState
from fairtrial.plugins import Plugin
from fairtrial.store.redact import Redactor
from fairtrial.workspace.template import Template, make_template, resolve_commit

pytestmark = pytest.mark.needs("bwrap", "git")

PYTHON: Final = ("/usr/bin/python3", "-I", "-S", "-c")
LIST_FILES: Final = "find . -type f -not -path './.git/*' | sort >/opt/context/index/files"
QUIET: Final = "import sys"
SERVER: Final = """
import json, sys
def look():
    return open("/opt/context/index/files").read()
def see():
    return open("/workspace/calc.py").read()
def change():
    open("/workspace/calc.py", "w").write("changed")
def reach():
    import socket
    socket.create_connection(("1.1.1.1", 53), 2)
tools = {each.__name__: each for each in (look, see, change, reach)}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, params = asked["method"], asked.get("params", {})
    result = {"content": []}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "t", "version": "7"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name} for name in tools]}
    elif method == "tools/call":
        try:
            result = {"content": [{"type": "text", "text": tools[params["name"]]()}]}
        except OSError as problem:
            result = {"isError": True, "content": [{"type": "text", "text": type(problem).__name__}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


class Lister:
    """A context that lists files."""

    tested_version: ClassVar[str] = "1"
    install: ClassVar[str] = "nothing"
    licence: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ("look", "see", "reach")
    mutating: ClassVar[tuple[str, ...]] = ("change",)
    settings: ClassVar[tuple[str, ...]] = ()
    places: ClassVar[Mapping[str, bytes]] = {}
    builds: ClassVar[str] = LIST_FILES
    proves: ClassVar[str] = QUIET

    def probe(self) -> ContextProbe:
        return ContextProbe(version="1", details={}, installation=ContextInstallation(programs={}), missing=None)

    def build(self, _installation: ContextInstallation) -> ContextCommand:
        return ContextCommand(argv=("/bin/sh", "-ec", self.builds), wall_s=60)

    def prove(self, _installation: ContextInstallation, markers: Sequence[str]) -> ContextCommand:
        return ContextCommand(argv=(*PYTHON, self.proves, *markers))

    def serve(self, _installation: ContextInstallation) -> ContextCommand:
        return ContextCommand(argv=(*PYTHON, SERVER))


@dataclass(frozen=True, kw_only=True)
class World:
    """A task, its tree, and what builds an index of it."""

    task: Task
    template: Template
    host: Host

    def found(self, name: str = "lister", **otherwise: object) -> FoundContext:
        kind = type("Otherwise", (Lister,), otherwise)
        plugin = Plugin(group="fairtrial.contexts", name=name, target=kind, distribution="t 1", file_sha256="0" * 64)
        context: Any = kind()
        return FoundContext(name=name, context=context, plugin=plugin, probe=context.probe())

    def build(self, name: str = "lister", **otherwise: object) -> BuiltIndex:
        return build_index(self.found(name, **otherwise), self.task, self.template, self.host)

    def files(self, built: BuiltIndex) -> list[str]:
        return (built.directory(self.host.scratch) / "files").read_text().split()


@pytest.fixture
def hidden_world(world: Path, public_path: Path, slot: Slot) -> World:
    """A repository that hides `answers`, with a file that names it and a link that does."""
    repository = world / "repo"
    (repository / "answers").mkdir()
    (repository / "answers" / "add.py").write_text("return a + b\n")
    (repository / "notes.md").write_text("See answers/add.py.\n")
    (repository / "way").symlink_to("answers/add.py")
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("add", "-A"), ("commit", "-qm", "more")):
        subprocess.run([*git, *words], cwd=repository, check=True)
    oracle = {
        "runner": "unittest",
        "command": "discover",
        "expect_tests": 1,
        "files": [{"source": "test_hidden.py", "target": "test_hidden.py"}],
    }
    entry = {"id": "t", "class": "c", "repo": "repo", "prompt": "p", "verify": "true", "hidden": ["answers"]}
    (world / "tasks.yaml").write_text(json.dumps({"tasks": [{**entry, "oracle": oracle}]}))
    document, parsed = read_task_file(world / "tasks.yaml")
    task = bind_task(document, 0, parsed.tasks[0], BlobStore(public_path / "blobs"))
    commit = resolve_commit(repository, "HEAD")
    template = make_template(repository, commit, slot.root / "t", slot=slot, hide=task.hidden)
    return World(
        task=task, template=template, host=Host(slot=slot, enforcement=probe_limits(slot), scratch=public_path)
    )


def test_an_index_is_built_from_the_tree_without_what_names_what_is_hidden(hidden_world: World) -> None:
    built = hidden_world.build()
    assert hidden_world.files(built) == ["./.gitignore", "./calc.py", "./tests/test_calc.py"]
    assert built.withheld == ("notes.md", "way")
    assert (built.files, built.commit) == (1, hidden_world.template.commit)
    assert (built.server.name, built.server.tools) == ("t", ("change", "look", "reach", "see"))
    assert (hidden_world.template.tree / "notes.md").exists(), "the tree that trials see is untouched"


def test_a_word_that_only_has_a_hidden_name_in_it_names_nothing(hidden_world: World) -> None:
    task = replace(hidden_world.task, hidden=("add", "tests"))
    world = replace(hidden_world, task=task)
    content = "import unittests, additional"
    (world.template.tree / "more.py").write_text(content)
    built = world.build(builds="cp /workspace/more.py /opt/context/index/files")
    assert "more.py" not in built.withheld
    assert world.files(built) == content.split()


def test_an_index_is_built_once_and_the_same_bytes_have_the_same_digest(hidden_world: World) -> None:
    first = hidden_world.build()
    assert hidden_world.build(builds="exit 1") == first, "it is there, so nothing is run"
    again = hidden_world.build("other")
    assert again.manifest_digest == first.manifest_digest
    assert again.snapshot_digest != first.snapshot_digest
    assert {path.stat().st_mode & 0o777 for path in first.directory(hidden_world.host.scratch).iterdir()} == {0o444}


@pytest.mark.parametrize(
    ("builds", "says"),
    [
        ("echo answers/add.py >/opt/context/index/files", "names 'answers', which the task hides, in files"),
        ("touch /opt/context/index/answers.db", "names 'answers', which the task hides, in answers.db"),
    ],
)
def test_an_index_that_names_what_is_hidden_is_refused(hidden_world: World, builds: str, says: str) -> None:
    with pytest.raises(IntegrityError, match=says):
        hidden_world.build(builds=builds)
    assert not [path for path in (hidden_world.host.scratch / CONTEXTS).iterdir() if path.is_dir()], "nothing is kept"


def test_an_index_of_which_its_own_query_finds_something_is_refused(hidden_world: World) -> None:
    with pytest.raises(IntegrityError, match="holds what the task hides: \\['answers'"):
        hidden_world.build(proves="import sys; print(sys.argv[1:])")


@pytest.mark.parametrize(
    ("otherwise", "says"),
    [
        ({"builds": "exit 3"}, "/bin/sh ended with 3"),
        ({"builds": "true"}, "nothing was written"),
        ({"builds": "ln -s /etc/passwd /opt/context/index/l"}, "'l' is no regular file"),
        ({"builds": "echo >/workspace/new"}, "Read-only file system"),
        ({"proves": "import sys; sys.exit(1)"}, "ended with 1"),
        ({"tools": ("look", "see", "reach", "more")}, "server and plugin differ in tools: more"),
        ({"mutating": ()}, "server and plugin differ in tools: change"),
    ],
)
def test_what_goes_wrong_is_said(hidden_world: World, otherwise: dict[str, Any], says: str) -> None:
    with pytest.raises(HostError, match=says):
        hidden_world.build(**otherwise)


@pytest.fixture
def ask(hidden_world: World, tmp_path: Path) -> Iterator[Callable[..., tuple[list[dict[str, Any]], ServerSeen]]]:
    """Call tools, each by a message, from a session's sandbox; the answers, and what the server saw."""
    built = hidden_world.build()
    host = hidden_world.host

    def run(*tools: str) -> tuple[list[dict[str, Any]], ServerSeen]:
        calls = [{"jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": {"name": tool}} for tool in tools]
        asked = "".join(json.dumps(call) + "\n" for call in calls).encode()
        log = tmp_path / "tools.jsonl"
        with ToolServer(hidden_world.found(), built, host, tree=hidden_world.template.tree) as server:
            spec = SandboxSpec(
                argv=("/usr/bin/python3", "-I", "-S", BRIDGE, f"{SOCKET_ROOT}/{SOCKET}"),
                env={},
                cwd="/",
                binds=server.binds,
                files=server.files,
                stdin=asked,
            )
            result = run_sandbox(
                spec, slot=host.slot, enforcement=host.enforcement, capture_bytes=1 << 16, beside=(server.sandbox,)
            )
            assert result.ok, result
            return [json.loads(line) for line in result.stdout.head.splitlines()], server.end(log, Redactor([]))

    yield run
    assert [path.name for path in host.slot.root.iterdir()] == ["t"], "nothing is left but the template"


def test_a_session_reaches_the_server_by_socket_and_bridge(
    ask: Callable[..., tuple[list[dict[str, Any]], ServerSeen]],
) -> None:
    (looked, seen), server = ask("look", "see")
    assert "./calc.py" in looked["result"]["content"][0]["text"]
    assert "return a - b" in seen["result"]["content"][0]["text"], "it sees the session's tree"
    assert (server.calls, server.ended) == ({"look": 1, "see": 1}, "stopped")


def test_no_mount_of_a_session_with_a_server_tells_where_we_lie(hidden_world: World) -> None:
    host = hidden_world.host
    with ToolServer(hidden_world.found(), hidden_world.build(), host, tree=hidden_world.template.tree) as server:
        assert [bind.source for bind in server.binds if not bind.source.is_relative_to(host.slot.root)] == []
        assert [file.target for file in server.files] == [BRIDGE]


def test_a_tool_that_changes_the_tree_is_refused_and_could_not(
    ask: Callable[..., tuple[list[dict[str, Any]], ServerSeen]], hidden_world: World
) -> None:
    (answer,), server = ask("change")
    assert "there is no tool change" in answer["error"]["message"]
    assert (server.calls, server.refused_calls) == ({}, {"change": 1})
    built = replace(hidden_world.build(), mutating=())  # as though its plugin had not said so
    log = hidden_world.host.slot.root.parent / "log"
    host = hidden_world.host
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"change"}}\n'
    with ToolServer(hidden_world.found(), built, host, tree=hidden_world.template.tree) as open_server:
        spec = SandboxSpec(
            argv=("/usr/bin/python3", "-I", "-S", BRIDGE, f"{SOCKET_ROOT}/{SOCKET}"),
            env={},
            cwd="/",
            binds=open_server.binds,
            files=open_server.files,
            stdin=call,
        )
        result = run_sandbox(spec, slot=host.slot, enforcement=host.enforcement, capture_bytes=1 << 16)
        assert b'"isError": true' in result.stdout.head
        assert open_server.end(log, Redactor([])).failed_calls == {"change": 1}
    assert "return a - b" in (hidden_world.template.tree / "calc.py").read_text()


def test_the_log_of_a_server_holds_no_secret(hidden_world: World, tmp_path: Path) -> None:
    host, secret, log = hidden_world.host, "SECRET-of-this-session", tmp_path / "tools.jsonl"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": secret}}
    with ToolServer(hidden_world.found(), hidden_world.build(), host, tree=hidden_world.template.tree) as server:
        spec = SandboxSpec(
            argv=("/usr/bin/python3", "-I", "-S", BRIDGE, f"{SOCKET_ROOT}/{SOCKET}"),
            env={},
            cwd="/",
            binds=server.binds,
            files=server.files,
            stdin=json.dumps(call).encode() + b"\n",
        )
        assert run_sandbox(spec, slot=host.slot, enforcement=host.enforcement).ok
        seen = server.end(log, Redactor([secret]))
    assert secret not in log.read_text()
    assert sum(seen.calls.values()) == 1
    assert secret not in str(seen)


def test_a_server_reaches_no_network(ask: Callable[..., tuple[list[dict[str, Any]], ServerSeen]]) -> None:
    (answer,), server = ask("reach")
    assert answer["result"]["isError"] is True
    assert server.failed_calls == {"reach": 1}


def test_a_server_that_cannot_be_started_is_a_fault_of_the_host(hidden_world: World, tmp_path: Path) -> None:
    built = hidden_world.build()
    found = hidden_world.found()
    with pytest.raises(HostError, match="not there, and was to be mounted"):
        ToolServer(found, built, hidden_world.host, tree=tmp_path / "gone")
    assert INDEX.startswith("/opt/context/")


def test_a_server_whose_tree_was_closed_by_a_session_is_that_sessions_fault(
    hidden_world: World, tmp_path: Path
) -> None:
    host, closed = hidden_world.host, hidden_world.host.slot.root / "closed"
    closed.mkdir()
    host.slot.give(closed)
    closed.chmod(0)
    with ToolServer(hidden_world.found(), hidden_world.build(), host, tree=closed) as server:
        assert server.sandbox.wait().state is SandboxState.START_FAILURE
        seen = server.end(tmp_path / "tools.jsonl", Redactor([]))
    assert (seen.ended, seen.connections, seen.calls) == ("broken", 0, {})


def test_a_session_that_makes_up_tools_adds_one_name_to_its_row(
    ask: Callable[..., tuple[list[dict[str, Any]], ServerSeen]],
) -> None:
    answers, server = ask("look", *(f"made-up-{number}" for number in range(50)))
    assert len(answers) == 1, "the server dies of the first: it has no such tool"
    assert set(server.calls) == {"look", OTHER}
