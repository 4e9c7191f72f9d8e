"""Real command lines in the real sandbox, with no network but the real gateway, which plays a script."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from fairtrial.gateway.client import GatewayProcess, OpenTrial
from fairtrial.gateway.control import TrialClosed, TrialOpening
from fairtrial.gateway.ledger import WireRow, read_ledger
from fairtrial.gateway.play import expected_usage
from fairtrial.gateway.script import read_script
from fairtrial.gateway.settings import GatewaySettings
from fairtrial.host.files import remove_tree
from fairtrial.host.limits import Enforcement, probe_limits
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot, open_slot
from fairtrial.model.agent import AgentProbe, Report, SessionRequest
from fairtrial.model.sandbox import Access, Bind, Capture, Limits, SandboxResult, SandboxSpec, SandboxState
from fairtrial.model.usage import TokenUsage
from fairtrial.payload import __path__ as payload_path
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent

PORT: Final = 8484
MODELS: Final = {
    "anthropic-messages": "claude-sonnet-4-5",
    "openai-chat": "gpt-5",
    "openai-responses": "gpt-5",
    "gemini": "gemini-2.5-pro",
}
CALC: Final = "def add(a, b):\n    return a - b\n"
FIXED: Final = "def add(a, b):\n    return a + b\n"
SKILL: Final = "---\nname: demo\ndescription: How add is mended here\n---\n\nTurn the sign around.\n"

Turn = dict[str, Any]
ScriptAgent = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One finished session, from all three sides.

    Attributes:
        result: What the kernel saw.
        report: What the CLI says.
        closed: What the wire came to.
        rows: The wire, request by request.
        expected: The script's sum, had each turn been played once.
        workspace: The tree that it worked on.
        stdout: What the CLI printed.
    """

    result: SandboxResult
    report: Report
    closed: TrialClosed
    rows: tuple[WireRow, ...]
    expected: TokenUsage
    workspace: Path
    stdout: bytes

    @property
    def buckets(self) -> tuple[int | None, ...]:
        """What the wire counted."""
        return buckets_of(self.closed.totals.spend.usage)


Drive = Callable[..., Session]


def buckets_of(usage: TokenUsage | None) -> tuple[int | None, ...]:
    assert usage is not None
    return (usage.uncached_input, usage.cache_write, usage.cache_read, usage.output)


@pytest.fixture(scope="session")
def public_root() -> Iterator[Path]:
    """A directory that any user may enter: with root, sandboxes run under another uid."""
    directory = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    remove_tree(directory)


@pytest.fixture(scope="session")
def slot(public_root: Path) -> Slot:
    return open_slot(public_root)


@pytest.fixture(scope="session")
def enforcement(slot: Slot) -> Enforcement:
    return probe_limits(slot)


@pytest.fixture(scope="session")
def control(public_root: Path) -> Iterator[Path]:
    """The control socket of one gateway: what its scripts plan for one session holds no other one back."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    with GatewayProcess(python=sys.executable) as gateway:
        yield gateway.start(GatewaySettings(directory=str(public_root / "g")), env)


@pytest.fixture(scope="session")
def agent_of() -> Callable[[str], tuple[Agent, AgentProbe]]:
    """An agent by its plugin's name, with what this host has of it, probed once."""
    probed: dict[str, tuple[Agent, AgentProbe]] = {}

    def find(name: str) -> tuple[Agent, AgentProbe]:
        if name not in probed:
            agent: Agent = load_plugin("fairtrial.agents", name).target()
            probed[name] = (agent, agent.probe())
        return probed[name]

    return find


@pytest.fixture
def repository(slot: Slot) -> Iterator[Path]:
    """A git repository with a bug and a skill, one commit, all of it the slot's."""
    root = Path(tempfile.mkdtemp(prefix="", dir=slot.root))
    (root / "calc.py").write_text(CALC)
    for place in (".claude/skills/demo", ".agents/skills/demo"):
        (root / place).mkdir(parents=True)
        (root / place / "SKILL.md").write_text(SKILL)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)
    for path in (root, *root.rglob("*")):
        slot.give(path)
    yield root
    remove_tree(root)


@pytest.fixture
def drive(
    slot: Slot,
    enforcement: Enforcement,
    control: Path,
    agent_of: Callable[[str], tuple[Agent, AgentProbe]],
    repository: Path,
    tmp_path: Path,
) -> Drive:
    """Run one session of an agent on the repository with a scripted model."""

    def run(
        name: str,
        agents: list[ScriptAgent],
        *,
        times: Mapping[str, int] | None = None,
        wall_s: float = 90.0,
        **changes: object,
    ) -> Session:
        agent, probe = agent_of(name)
        assert probe.installation is not None, probe.missing
        file, ledger, sink = tmp_path / "script.yaml", tmp_path / "wire.jsonl", tmp_path / "stdout"
        file.write_text(json.dumps({"schema": "script/1", "agents": agents}))
        model = MODELS[str(agent.dialect)]
        opening = TrialOpening(
            trial="t",
            ledger=str(ledger),
            models=(model,),
            dialects=(str(agent.dialect),),
            script=str(file),
            owner_uid=slot.uid,
        )
        with OpenTrial(control, opening) as trial:
            request = SessionRequest(
                prompt="Mend add.",
                model=model,
                endpoint=f"http://127.0.0.1:{PORT}",
                token=trial.opened.token,
                timeout_s=wall_s,
                **cast("dict[str, Any]", changes),
            )
            plan = agent.session(request, probe.installation)
            relay = Bind(source=Path(payload_path[0]).resolve() / "relay.py", target="/opt/relay.py")
            binds = (
                Bind(source=repository, target="/workspace", access=Access.READ_WRITE),
                Bind(source=Path(trial.opened.directory), target="/run/model"),
                relay,
            )
            inside = f"/run/model/{Path(trial.opened.socket).name}"
            spec = SandboxSpec(
                argv=("/usr/bin/python3", "-I", "-S", "/opt/relay.py", str(PORT), inside, "--", *plan.argv),
                env=plan.env,
                cwd=plan.cwd,
                binds=(*binds, *plan.binds),
                files=plan.files,
                stdin=plan.stdin,
                capture=Capture.SOCKET,
                limits=Limits(wall_s=wall_s, grace_s=2.0),
            )
            spec = replace(spec, tmpfs=(*spec.tmpfs, *plan.tmpfs))
            with sink.open("wb") as output:
                result = run_sandbox(spec, slot=slot, enforcement=enforcement, sink=output, capture_bytes=1 << 20)
            closed = trial.close()
        stdout = sink.read_bytes()
        rows = tuple(row for row in read_ledger(ledger) if isinstance(row, WireRow))
        assert result.state is SandboxState.EXITED, result
        with sink.open("rb") as lines:
            report = agent.read_report(lines)
        return Session(
            result=result,
            report=report,
            closed=closed,
            rows=rows,
            expected=expected_usage(read_script(file), times=times),
            workspace=repository,
            stdout=stdout,
        )

    return run


@pytest.fixture(scope="session")
def usage() -> Callable[..., dict[str, int]]:
    """Makes usages whose buckets are all different, and different for each number."""

    def make(n: int, *, cache_write: int = 0) -> dict[str, int]:
        counts = {"uncached_input": 1000 + n, "cache_read": 30_000 + 7 * n, "output": 200 + 3 * n}
        return counts | {"cache_write": cache_write + n if cache_write else 0}

    return make


@pytest.fixture(scope="session")
def buckets() -> Callable[[TokenUsage | None], tuple[int | None, ...]]:
    """The four buckets of a usage, in order."""
    return buckets_of


@pytest.fixture(scope="session")
def fixed() -> str:
    """What `calc.py` is to hold in the end."""
    return FIXED


@pytest.fixture
def drive_without_model(
    slot: Slot, enforcement: Enforcement, agent_of: Callable[[str], tuple[Agent, AgentProbe]], repository: Path
) -> Callable[..., tuple[int | None, str]]:
    """Run a session of an agent that speaks to no model; its exit status and what `calc.py` holds then."""

    def run(name: str, patch: bytes) -> tuple[int | None, str]:
        agent, probe = agent_of(name)
        assert probe.installation is not None, probe.missing
        request = SessionRequest(prompt="", model="", endpoint="", token="", timeout_s=30, patch=patch)
        plan = agent.session(request, probe.installation)
        tree = Bind(source=repository, target="/workspace", access=Access.READ_WRITE)
        spec = SandboxSpec(argv=plan.argv, env=plan.env, binds=(tree, *plan.binds), stdin=plan.stdin)
        result = run_sandbox(spec, slot=slot, enforcement=enforcement, capture_bytes=1 << 16)
        report = agent.read_report([result.stdout.head])
        assert report.ended
        assert report.problem is None
        return result.returncode, (repository / "calc.py").read_text()

    return run
