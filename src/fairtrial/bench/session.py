"""One session: an agent in a sandbox, behind the relay, with the gateway as its only way out."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from fairtrial.agents.sessions import SYSTEM_PATH
from fairtrial.bench.environment import ENDPOINT, describe_session, request_of, undeclared
from fairtrial.bench.index import BuiltIndex
from fairtrial.bench.node import GRACE_S, FoundAgent, Node, limits_of, search_path, workspace_bind
from fairtrial.bench.plugin_files import PLUGIN_ROOT, frozen_plugin
from fairtrial.bench.plugin_use import markers_of
from fairtrial.bench.review import REVIEW_ROOT, desk_bind
from fairtrial.bench.tool_server import ServerSeen, ToolServer, tool_markers
from fairtrial.bench.transcript import Transcript, lines_of, write_transcript
from fairtrial.errors import IntegrityError
from fairtrial.gateway.client import GatewayGoneError, OpenTrial
from fairtrial.gateway.control import TrialClosed, TrialOpened, TrialOpening
from fairtrial.gateway.ledger import WireRow, read_ledger
from fairtrial.gateway.policy import Limits, UnnamedModel
from fairtrial.host.clock import utc_now
from fairtrial.host.payload import payload_file
from fairtrial.host.sandbox import run_sandbox
from fairtrial.model.agent import Report, SessionPlan, SessionRequest, Skill, SkillProof
from fairtrial.model.bench import Phase, SkillFiles
from fairtrial.model.sandbox import WORKSPACE, Access, Bind, Capture, SandboxResult, SandboxSpec
from fairtrial.model.trial import BenchSpec
from fairtrial.store.redact import Redactor
from fairtrial.workspace.layers import Layer
from fairtrial.workspace.tree import Tree

__all__ = ["RELAY", "Session", "SessionOrder", "run_session"]

PORT: Final = int(ENDPOINT.rpartition(":")[2])
RELAY: Final = "/opt/relay/relay.py"
SOCKET_ROOT: Final = "/run/model"
RELAY_GRACE_S: Final = 10.0
START_UP_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOrder:
    """What one session is to be.

    Attributes:
        spec: The attempt.
        phase: The phase.
        prompt: The filled template.
        marker: A text that only this session knows, put into the placed skill where the agent's proof is a file.
        patch: What the reference agent applies.
        cheat: Shell script that runs instead of the agent, or None.
        directory: Where transcript and wire log go.
        skills: Where in the tree skills may lie that it cannot write.
        limits: What is left of the trial's budget.
        desk: Where it leaves its review: then it cannot write the tree. None for a session that works on the tree.
        index: The index whose tools the session has, or None.
    """

    spec: BenchSpec
    phase: Phase
    prompt: str
    marker: str
    patch: bytes
    cheat: bytes | None
    directory: Path
    skills: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    desk: Layer | None = None
    index: BuiltIndex | None = None

    @property
    def timeout_s(self) -> float:
        """Seconds that it may take."""
        return self.phase.timeout_s or self.spec.bench.timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One finished session, from all sides.

    Attributes:
        phase: The phase's name.
        result: What the kernel saw.
        report: What the CLI says; None where a script stood for it.
        closed: What the wire came to; None where no model is spoken to, or the gateway died.
        gateway_gone: The gateway died.
        rows: The wire, request by request.
        transcript: Its transcript; None when it could not be kept.
        transcript_problem: Why not, else None.
        out_of_time: It took longer than it may.
        environment: What the agent could see of its surroundings, without what differs from trial to trial.
        undeclared: What of that must be the same for other arms, by a label that says for which.
        tools: What its tool server saw; None where there was none.
    """

    phase: str
    result: SandboxResult
    report: Report | None
    closed: TrialClosed | None
    gateway_gone: bool
    rows: tuple[WireRow, ...]
    transcript: Transcript | None
    transcript_problem: str | None
    out_of_time: bool
    environment: Mapping[str, object]
    undeclared: Mapping[str, object]
    tools: ServerSeen | None = None


def run_session(node: Node, order: SessionOrder, layer: Layer, agent: FoundAgent) -> Session:
    """Run it to its end.

    Raises:
        HostError: The host failed.
        UsageError: The agent cannot do what the arm asks.
        GatewayGoneError: The gateway could not even be asked.
    """
    spec, raw = order.spec, node.blobs.root.parent / f"o{order.spec.short_name}"
    dialect = agent.agent.dialect
    if dialect is None or spec.gateway is None:
        request = _request(node, order, agent, token="")
        seen = _describe(order, agent, request)
        spec_of_session = _sandbox(node, _plan(order, agent, request), layer, order, opened=None)
        result, tools = _run(node, order, spec_of_session, layer, raw, Redactor([]))
        return _finish(
            order, agent, result, raw, closed=None, gone=False, ledger=None, token="", seen=seen, tools=tools
        )
    ledger = order.directory / f"wire-{order.phase.name}.jsonl"
    opening = TrialOpening(
        trial=f"{spec.key}#{spec.attempt}",
        ledger=str(ledger),
        models=(spec.bench.arm.model,),
        dialects=(dialect,),
        upstream=spec.source.upstream,
        script=spec.source.script,
        record=str(order.directory / f"script-{order.phase.name}.yaml") if spec.source.record else None,
        unnamed_model=UnnamedModel(spec.bench.arm.unnamed_models),
        limits=order.limits,
        grants=spec.bench.arm.grants,
        include_usage=spec.bench.arm.include_usage,
        markers=_markers(order, agent),
        owner_uid=node.slot.uid,
    )
    closed = None
    with OpenTrial(Path(spec.gateway), opening) as trial:
        token = trial.opened.token
        request = _request(node, order, agent, token=token)
        seen = _describe(order, agent, request)
        plan = _plan(order, agent, request)
        spec_of_session = _sandbox(node, plan, layer, order, opened=trial.opened)
        result, tools = _run(node, order, spec_of_session, layer, raw, Redactor([token]))
        try:
            closed = trial.close()
        except GatewayGoneError:
            closed = None  # the ending says so: session-error, with what the wire log holds as a lower bound
    return _finish(
        order,
        agent,
        result,
        raw,
        closed=closed,
        gone=closed is None,
        ledger=ledger,
        token=token,
        seen=seen,
        tools=tools,
    )


def _markers(order: SessionOrder, agent: FoundAgent) -> tuple[str, ...]:
    """What is looked for in the text of each request."""
    skill = (order.marker,) if agent.agent.skills is SkillProof.FILE else ()
    index = order.index
    tools = () if index is None else tool_markers(index.context, index.server.tools)
    return (*skill, *markers_of(order.spec.bench.arm.plugin), *tools)


def _describe(order: SessionOrder, agent: FoundAgent, request: SessionRequest) -> dict[str, object]:
    arm = order.spec.bench.arm
    digests = {skill.name: skill.digest for skill in arm.skills}
    return describe_session(agent.agent, agent.installation, request, digests, arm.plugin)


def _request(node: Node, order: SessionOrder, agent: FoundAgent, *, token: str) -> SessionRequest:
    arm = order.spec.bench.arm
    return request_of(
        arm,
        order.phase,
        prompt=order.prompt,
        token=token,
        timeout_s=order.timeout_s,
        skills=[_skill(node, files, order, agent) for files in arm.skills],
        patch=order.patch,
    )


def _plan(order: SessionOrder, agent: FoundAgent, request: SessionRequest) -> SessionPlan:
    plan = agent.agent.session(request, agent.installation)
    if order.cheat is not None:
        plan = replace(plan, argv=("/bin/sh", "-s"), stdin=order.cheat)
    return plan


def _skill(node: Node, files: SkillFiles, order: SessionOrder, agent: FoundAgent) -> Skill:
    contents = {blob.name: node.blobs.read(blob) for blob in files.files}
    if agent.agent.skills is SkillProof.FILE and files.name == order.phase.skill:
        contents["SKILL.md"] += f"\n<!-- {order.marker} -->\n".encode()
    return Skill(name=files.name, files=contents)


def _sandbox(
    node: Node, plan: SessionPlan, layer: Layer, order: SessionOrder, *, opened: TrialOpened | None
) -> SandboxSpec:
    task = order.spec.bench.task
    deadline_s = utc_now().timestamp() + order.timeout_s
    plugin = order.spec.bench.arm.plugin
    binds = (*_workspace(layer, order), *node.binds(task), *plan.binds)
    if plugin is not None:
        binds = (*binds, Bind(source=frozen_plugin(node.blobs, plugin), target=PLUGIN_ROOT))
    argv, files = plan.argv, plan.files
    if opened is not None:
        binds = (*binds, Bind(source=Path(opened.directory), target=SOCKET_ROOT))
        files = (*files, payload_file(RELAY))
        inside = f"{SOCKET_ROOT}/{Path(opened.socket).name}"
        argv = ("/usr/bin/python3", "-I", "-S", RELAY, str(PORT), inside, "--", *plan.argv)
    limits = limits_of(task.limits, wall_s=order.timeout_s + RELAY_GRACE_S if opened is not None else order.timeout_s)
    spec = SandboxSpec(
        argv=argv,
        env={
            **plan.env,
            "PATH": plan.env["PATH"].removesuffix(SYSTEM_PATH) + search_path(task, SYSTEM_PATH),
            "FAIRTRIAL_DEADLINE": f"{deadline_s:.3f}",
            "FAIRTRIAL_GRACE_S": f"{RELAY_GRACE_S - GRACE_S:g}",
            **({} if order.desk is None else {"FAIRTRIAL_REVIEW_ROOT": REVIEW_ROOT}),
        },
        cwd=plan.cwd,
        binds=binds,
        files=files,
        stdin=plan.stdin,
        capture=Capture.SOCKET,
        limits=limits,
    )
    return replace(spec, tmpfs=(*spec.tmpfs, *plan.tmpfs))


def _workspace(layer: Layer, order: SessionOrder) -> tuple[Bind, ...]:
    """The tree, but for its skills that are kept; a review cannot write any of it, and has a directory of its own."""
    tree = workspace_bind(layer)
    if order.desk is not None:
        return replace(tree, access=Access.READ_ONLY), desk_bind(order.desk)
    found = [skill for skill in order.skills if Tree(layer.merged).is_directory(skill.encode())]
    return tree, *(Bind(source=layer.merged / skill, target=f"{WORKSPACE}/{skill}") for skill in found)


def _run(
    node: Node, order: SessionOrder, spec: SandboxSpec, layer: Layer, raw: Path, redactor: Redactor
) -> tuple[SandboxResult, ServerSeen | None]:
    """Run the session's sandbox, beside that of its tool server where it has one."""
    with raw.open("wb") as sink, ExitStack() as stack:
        server = None
        if order.index is not None:
            found = node.context(order.index.context)
            server = stack.enter_context(ToolServer(found, order.index, node.host, tree=layer.merged))
            spec = replace(spec, binds=(*spec.binds, *server.binds), files=(*spec.files, *server.files))
        result = run_sandbox(
            spec,
            slot=node.slot,
            enforcement=node.enforcement,
            space=(order.desk or layer).space,
            sink=sink,
            beside=() if server is None else (server.sandbox,),
        )
        log = order.directory / f"tools-{order.phase.name}.jsonl"
        return result, None if server is None else server.end(log, redactor)


def _finish(
    order: SessionOrder,
    agent: FoundAgent,
    result: SandboxResult,
    raw: Path,
    *,
    closed: TrialClosed | None,
    gone: bool,
    ledger: Path | None,
    token: str,
    seen: dict[str, object],
    tools: ServerSeen | None,
) -> Session:
    name = f"transcript-{order.phase.name}.jsonl"
    transcript, problem = None, None
    try:
        with raw.open("rb") as lines:
            report = agent.agent.read_report(lines_of(lines)) if order.cheat is None else None
        transcript = write_transcript(raw, order.directory / name, Redactor([token] if token else []))
    except OSError as failure:
        report, problem = None, f"{name}: {failure.strerror}"
    finally:
        raw.unlink(missing_ok=True)
    rows: tuple[WireRow, ...] = ()
    if ledger is not None:
        try:
            rows = tuple(read_ledger(ledger))
        except (OSError, IntegrityError) as failure:
            problem = f"wire log: {failure}"
    return Session(
        phase=order.phase.name,
        result=result,
        report=report,
        closed=closed,
        gateway_gone=gone,
        rows=rows,
        transcript=transcript if problem is None else None,
        transcript_problem=problem,
        out_of_time=result.elapsed_ms >= order.timeout_s * 1000,
        environment=seen,
        undeclared=undeclared(agent.plugin.name, order.spec.bench.arm, order.phase, seen),
        tools=tools,
    )
