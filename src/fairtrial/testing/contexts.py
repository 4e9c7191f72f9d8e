"""The conformance suite of contexts: how a stranger proves a new one, and how ours are proven.

The cases look at one index of a small repository, built in the real sandbox as a trial does. That needs the context's
entry point and programs, git and Bubblewrap. They say by `NonconformityError` what is not as it must be. With pytest:

    @pytest.fixture(scope="module")
    def world(directory: Path) -> ContextWorld:
        return make_world(HANDS, directory)

    @pytest.mark.parametrize("case", CONTEXT_CASES, ids=str)
    def test_my_context_conforms(case: ContextCase, world: ContextWorld) -> None:
        case.check(world)
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typing_extensions import override

from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.index import BuiltIndex, FoundContext, Host, build_index, context_sandbox, find_context
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.bench.tool_server import ServerSeen, ToolServer, bridge_to
from fairtrial.host.git import git
from fairtrial.host.limits import probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import open_slot
from fairtrial.model.sandbox import SandboxSpec
from fairtrial.store.redact import Redactor
from fairtrial.testing.agents import NonconformityError
from fairtrial.workspace.template import Template, make_template

__all__ = ["CONTEXT_CASES", "ContextCase", "ContextHands", "ContextWorld", "make_world"]

NOWHERE: Final = "a_symbol_of_no_file"
# A client that waits for each answer: a server may leave what it has not answered when its client ends.
_CLIENT: Final = """
import subprocess, sys
with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bridge:
    for line in sys.stdin.buffer:
        bridge.stdin.write(line)
        bridge.stdin.flush()
        if b'"id"' in line:
            sys.stdout.buffer.write(bridge.stdout.readline())
    bridge.stdin.close()
"""
_CAPTURE_BYTES: Final = 1 << 20
_FILES: Final = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "uses.py": "from calc import add\n\n\ndef twice(a):\n    return add(a, a)\n",
    "notes.py": "def points_at_it():\n    return 'answers/solution.py'\n",
    "longer.py": "def unanswers():\n    return 'unanswers'\n",
    "answers/solution.py": "def the_hidden_answer():\n    return 5\n",
}
_TASK: Final = {
    "id": "suite",
    "class": "suite",
    "repo": "repo",
    "prompt": "Nothing.",
    "verify": "true",
    "hidden": ["answers"],
    "oracle": {
        "runner": "unittest",
        "command": "discover",
        "expect_tests": 1,
        "files": [{"source": "test_hidden.py", "target": "test_hidden.py"}],
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextHands:
    """What the suite must know of a context to ask it.

    Attributes:
        context: Name of the plugin.
        tool: A tool that is offered.
        arguments: What it is given to tell of the function `add` of `calc.py`, which `twice` of `uses.py` calls.
        answer: What its answer must hold.
    """

    context: str
    tool: str
    arguments: Mapping[str, object]
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextWorld:
    """A repository that hides `answers`, with a file that names it, and an index of it.

    Attributes:
        hands: How the context is asked.
        found: The context on this host.
        host: What the index was built with.
        template: The tree that it was built from.
        built: The index.
    """

    hands: ContextHands
    found: FoundContext
    host: Host
    template: Template
    built: BuiltIndex

    def prove(self, marker: str) -> bytes:
        """What its query finds of a marker."""
        command = self.found.context.prove(self.found.installation, [marker])
        index = self.built.directory(self.host.scratch)
        spec = context_sandbox(self.found, command, tree=self.template.tree, index=index)
        host = self.host
        done = run_sandbox(spec, slot=host.slot, enforcement=host.enforcement, capture_bytes=_CAPTURE_BYTES)
        _require(done.ok, f"its query for {marker!r} ended with {done.returncode}: {done.stderr.tail!r}")
        return done.stdout.head

    def ask(self, calls: Sequence[tuple[str, Mapping[str, object]]]) -> tuple[list[str], ServerSeen]:
        """Call tools from a session's sandbox: each answer as JSON, and what the server saw."""
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "suite", "version": "1"}}
        messages: list[dict[str, object]] = [
            {"id": 0, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/list"},
        ]
        for number, (tool, arguments) in enumerate(calls, start=2):
            messages.append({"id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        host, log = self.host, self.host.scratch / "tools.jsonl"
        with ToolServer(self.found, self.built, host, tree=self.template.tree) as server:
            spec = SandboxSpec(
                argv=("/usr/bin/python3", "-I", "-S", "-c", _CLIENT, *bridge_to(self.hands.context).argv),
                env={},
                cwd="/",
                binds=server.binds,
                files=server.files,
                stdin="".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages).encode(),
            )
            done = run_sandbox(
                spec,
                slot=host.slot,
                enforcement=host.enforcement,
                capture_bytes=_CAPTURE_BYTES,
                beside=(server.sandbox,),
            )
            seen = server.end(log, Redactor([]))
        _require(done.ok, f"the bridge to it ended with {done.returncode}: {done.stderr.tail!r}")
        answers = {answer.get("id"): answer for answer in map(json.loads, done.stdout.head.splitlines())}
        return [json.dumps(answers.get(number)) for number in range(2, 2 + len(calls))], seen


def make_world(hands: ContextHands, directory: Path) -> ContextWorld:
    """Build the index in an empty directory that any user may enter, with a short path.

    Raises:
        FairtrialError: There is no such context here, or its index was refused.
    """
    found, repository = find_context(hands.context), directory / "repo"
    settings = dict.fromkeys(found.context.settings, "neither this nor that")
    for name, text in {**_FILES, **settings}.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    (directory / "test_hidden.py").write_text("")
    (directory / "tasks.yaml").write_text(json.dumps({"tasks": [_TASK]}))
    identity = ("-c", "user.name=suite", "-c", "user.email=suite@example.invalid")
    for words in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message=suite"]):
        git(words, cwd=repository)
    document, parsed = read_task_file(directory / "tasks.yaml")
    task = bind_task(document, 0, parsed.tasks[0], BlobStore(directory / "blobs"))
    slot = open_slot(directory)
    host = Host(slot=slot, enforcement=probe_limits(slot), scratch=directory)
    template = make_template(repository, task.commit, slot.root / "t", slot=slot, hide=task.hidden)
    built = build_index(found, task, template, host)
    return ContextWorld(hands=hands, found=found, host=host, template=template, built=built)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCase:
    """One thing that every context must do.

    Attributes:
        name: A sentence.
        look: Tries it.
    """

    name: str
    look: Callable[[ContextWorld], None]

    def check(self, world: ContextWorld) -> None:
        """Try it with a context.

        Raises:
            NonconformityError: The context does not do it.
            FairtrialError: It could not be tried.
        """
        self.look(world)

    @override
    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _an_index(world: ContextWorld) -> None:
    context, built = world.found.context, world.built
    _require(world.found.probe.version is not None, "it tells no version")
    _require(built.files > 0, "its index has no files")
    _require(built.withheld == tuple(sorted((*context.settings, "notes.py"))), f"it was built without {built.withheld}")
    _require(not {*context.tools} & {*context.mutating}, "a tool is offered and withheld")


def _a_query(world: ContextWorld) -> None:
    _require(world.prove("twice") != b"", "its query does not find the function 'twice', which the tree has")
    _require(world.prove("unanswers") != b"", "its query does not find 'unanswers', which the tree has")
    for marker in ("the_hidden_answer", "points_at_it", NOWHERE, "answers"):
        said = world.prove(marker)
        _require(said == b"", f"its query finds {marker!r}: {said[:200]!r}")


def _an_answer(world: ContextWorld) -> None:
    hands, mutating = world.hands, world.found.context.mutating
    (answer, *refusals), seen = world.ask([(hands.tool, hands.arguments), *((tool, {}) for tool in mutating)])
    _require(hands.answer in answer, f"{hands.tool} answers {answer[:500]}, without {hands.answer!r}")
    _require(seen.calls == {hands.tool: 1}, f"its server was asked {dict(seen.calls)}")
    _require(seen.listed == tuple(sorted(world.found.context.tools)), f"it lists {seen.listed}")
    _require(seen.refused_calls == dict.fromkeys(mutating, 1), f"refused were {dict(seen.refused_calls)}")
    _require(all('"error"' in refusal for refusal in refusals), f"a withheld tool answers: {refusals}")


CONTEXT_CASES: Final = (
    ContextCase(name="an index is built from the tree without what names what is hidden", look=_an_index),
    ContextCase(name="its query finds what the index holds and nothing else", look=_a_query),
    ContextCase(name="its server answers from the tree and offers no tool that is withheld", look=_an_answer),
)
"""What every context must do, in order."""


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001 - what it is about
    if not holds:
        raise NonconformityError(problem)
