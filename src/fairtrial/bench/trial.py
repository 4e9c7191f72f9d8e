"""One trial of the agent lane, from top to bottom."""

import hashlib
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from fairtrial.bench.arms import fill_prompt
from fairtrial.bench.blobs import BlobLostError
from fairtrial.bench.budget import budget_left
from fairtrial.bench.candidate_tree import prepare_arm
from fairtrial.bench.index import BuiltIndex
from fairtrial.bench.judge import Judgement, check_base, judge
from fairtrial.bench.node import FoundAgent, Node, Prepared
from fairtrial.bench.plugin_use import is_from_plugin, listed_offers, plugin_seen
from fairtrial.bench.proof import prove_skill
from fairtrial.bench.review import (
    PROSE_FILE,
    REVIEW_FILE,
    Left,
    collect_review,
    judge_review,
    open_desk,
    require_labels,
    review_fields,
)
from fairtrial.bench.rows import (
    Row,
    broken_row,
    context_fields,
    context_flags,
    identity_of,
    integrity_flags,
    session_fields,
)
from fairtrial.bench.session import Session, SessionOrder, run_session
from fairtrial.bench.verdict import Ended, end_of_judgement, end_of_review, end_of_session, evidence_kind
from fairtrial.errors import FairtrialError, HostError, IntegrityError, UsageError
from fairtrial.evidence.endings import ENDINGS, CountsAs, EndingKind
from fairtrial.gateway.client import GatewayGoneError
from fairtrial.host.files import write_durably
from fairtrial.judging.values import CheckVerdict
from fairtrial.model.agent import Tool
from fairtrial.model.bench import IsolationMode, Phase, PhaseKind, PluginFiles, Task
from fairtrial.model.sandbox import Containment
from fairtrial.model.trial import BenchSpec
from fairtrial.protocols import Agent
from fairtrial.store.redact import Redactor
from fairtrial.workspace.archive import pack_change
from fairtrial.workspace.artifact import find_artifact
from fairtrial.workspace.change import Change, Entry, Kind, read_change
from fairtrial.workspace.churn import measure_churn
from fairtrial.workspace.layers import Layer, open_layer

__all__ = [
    "CHANGE",
    "between",
    "demanded_skills",
    "read_skill_places",
    "rewritten_skill",
    "run_bench_trial",
    "shown_paths",
    "skill_places",
]

CHANGE: Final = "change.tar"
PATCH: Final = "change.patch"
SKILLS: Final = ".claude/skills"
"""Where many agents look, whatever place of their own they have."""
DETAIL_CHARACTERS: Final = 2000
SHOWN_PATHS: Final = 1000
SHOWN_CHARACTERS: Final = 100_000
JUDGED_FIELDS: Final = (
    "authored_tests_passed",
    "authored_test_output",
    "verify_output",
    "oracle_passed",
    "oracle_output",
    "oracle_proof",
    "oracle_counts",
    "oracle_restored",
    "oracle_passed_source_only",
    "tests_edited",
    "auto_loaded",
    "review",
    "review_evidence_valid",
)


@dataclass(slots=True)
class _Work:
    """What the sessions of one trial came to, as it grows.

    Attributes:
        sessions: The sessions so far.
        change: What differs from the base now.
        ended: Why work stopped early; None while all is well.
        skill_invoked: Whether every demanded skill was proven; None when none is demanded, or one cannot be told.
        artifacts: What phases produced, by the phase's name.
        flags: What the agent's words say of its skills otherwise than the wire.
        left: What a review left; None where no review came to its end.
    """

    sessions: list[Session] = field(default_factory=list[Session])
    change: Change = field(default_factory=lambda: Change(entries=()))
    ended: Ended | None = None
    skill_invoked: bool | None = None
    artifacts: dict[str, str] = field(default_factory=dict[str, str])
    flags: list[str] = field(default_factory=list[str])
    left: Left | None = None


def run_bench_trial(node: Node, spec: BenchSpec, directory: Path) -> Row:
    """Run one arm on one task once; artifacts go to `directory`; return the attempt's row.

    Only an exception that is our own bug leaves this function.
    """
    try:
        prepared = node.prepare(spec.bench.task)
        agent = node.agent(spec.bench.arm.agent)
        return _run(node, spec, directory, prepared, agent)
    except GatewayGoneError as problem:
        return broken_row(spec, EndingKind.SESSION_ERROR, str(problem), directory)
    except BlobLostError as problem:
        return broken_row(spec, EndingKind.INFRA_ERROR, str(problem), directory)
    except (FairtrialError, OSError) as problem:
        return broken_row(spec, EndingKind.INFRA_ERROR, str(problem), directory)


def _run(node: Node, spec: BenchSpec, directory: Path, prepared: Prepared, agent: FoundAgent) -> Row:
    task = spec.bench.task
    room, storage = node.room(task.limits)
    index = None if spec.bench.arm.context is None else node.index(task, spec.bench.arm.context)
    with ExitStack() as stack:
        start = prepare_arm(node, task, spec.bench.arm)
        layer = stack.enter_context(open_layer(start.base, slot=node.slot, room=room, storage=storage))
        repository = node.repository(task, start.base, layer)
        desk = stack.enter_context(open_desk(node)) if task.is_review else None
        work = _work(node, spec, directory, prepared, agent, layer, desk, index)
        left_over = _clean_up(stack)
    row = identity_of(spec) | session_fields(work.sessions, agent, repository, layer.storage)
    row |= context_fields(index, work.sessions)
    row |= _change_fields(node, work, prepared, directory, skill_places(agent.agent.skills_directory))
    row |= {
        "sandboxed": node.enforcement.containment is not Containment.NONE,
        "sandbox_backend": str(node.enforcement.containment),
        "judge_uid": _judge_uid(node, task),
        "sanitized_task_sha": prepared.template.commit,
        "source_tree": prepared.template.source_tree,
        "sanitized_tree": prepared.template.tree_id,
        "variant_head_sha": start.head,
        "setup_layer_digest": prepared.setup_digest,
        "agent_plugin": {"distribution": agent.plugin.distribution, "file_sha256": agent.plugin.file_sha256},
        "skill_invoked": work.skill_invoked,
        "integrity_flags": [
            *integrity_flags(work.sessions, spec.bench.arm.effort),
            *context_flags(index, work.sessions),
            *work.flags,
        ],
        "plugin_seen": _plugin_seen(work, spec.bench.arm.plugin, _skill_tools(agent.agent)),
        "plan_produced": work.artifacts.get("plan"),
    }
    if task.is_review:
        row |= _judge_review(node, spec, prepared, work, directory)
    else:
        row |= _judge(node, spec, prepared, work, directory, changed=row["diff_files"] != 0)
    return row if left_over is None else row | _end_of_clean_up(row, left_over)


def _judge_uid(node: Node, task: Task) -> str | None:
    """Whether an oracle that sits apart has a uid of its own; None where none sits apart."""
    if task.isolation is not IsolationMode.PROCESS:
        return None
    return "shared" if node.slot.judge is None else "own"


def _plugin_seen(work: _Work, plugin: PluginFiles | None, tools: Sequence[str]) -> list[Row] | None:
    """What the model was told of the arm's plugin, session by session; None where there is none."""
    if plugin is None:
        return None
    return [plugin_seen(session.phase, session.rows, plugin, tools) for session in work.sessions]


def _clean_up(stack: ExitStack) -> str | None:
    """Remove the session's layer; what went wrong with that, or None. What it did is known by now."""
    try:
        stack.close()
    except HostError as problem:
        return str(problem)
    return None


def _end_of_clean_up(row: Row, left_over: str) -> Row:
    """A failed clean-up voids what was resolved or void; a failure of the arm stays one."""
    kind = row["error_kind"]
    if kind is not None and ENDINGS[EndingKind(str(kind))].counts_as is CountsAs.FAILURE:
        return {"cleanup_problem": left_over}
    primary = "" if kind is None else f" (after {kind}: {row['error_detail']})"
    detail = f"{left_over}{primary}"[:DETAIL_CHARACTERS]
    return {"ok": False, "resolved": False, "error_kind": str(EndingKind.CLEANUP_FAILURE), "error_detail": detail}


def _work(
    node: Node,
    spec: BenchSpec,
    directory: Path,
    prepared: Prepared,
    agent: FoundAgent,
    layer: Layer,
    desk: Layer | None,
    index: BuiltIndex | None,
) -> _Work:
    """Run the phases in order; the first that is not good is the last."""
    work, bench = _Work(), spec.bench
    proofs: list[bool | None] = []
    places = read_skill_places(agent.agent)
    for phase in bench.arm.phases:
        order = SessionOrder(
            spec=spec,
            phase=phase,
            prompt=fill_prompt(phase, task=bench.task.prompt, artifacts=work.artifacts, plugin=bench.arm.plugin),
            marker=f"fairtrial {secrets.token_hex(12)}",
            patch=node.blobs.read(bench.patch) if bench.patch else b"",
            cheat=node.blobs.read(bench.cheat) if bench.cheat else None,
            directory=directory,
            skills=demanded_skills(bench.arm.phases, places),
            limits=budget_left(bench.arm.budget, work.sessions),
            desk=desk,
            index=index,
        )
        session = run_session(node, order, layer, agent)
        work.sessions.append(session)
        before, work.change = work.change, read_change(layer, prepared.template, slot=node.slot)
        work.ended = end_of_session(session) or _end_of_evidence(session)
        if bench.arm.plugin is not None and session.rows and not listed_offers(session.rows, bench.arm.plugin):
            work.flags.append(f"{phase.name}: plugin was not there")
        if phase.skill is not None:
            proven = _prove(agent.agent, session, phase.skill, order.marker)
            tools = _skill_tools(agent.agent)
            if proven and not is_from_plugin(session.rows, phase.skill, bench.arm.plugin, tools):
                proven = False  # a skill of the same name, from elsewhere
            proofs.append(proven)
            work.flags += _flag_of_proof(phase, proven, session)
            work.ended = work.ended or _end_of_proof(phase, proven)
        work.ended = work.ended or _end_of_phase(work, phase, between(before, work.change), bench.arm.phases, places)
        if desk is not None:
            work.left = collect_review(desk, node.slot)
        if work.ended is not None:
            break
    work.skill_invoked = False if False in proofs else None if None in proofs or not proofs else True
    return work


def _prove(agent: Agent, session: Session, skill: str, marker: str) -> bool | None:
    return prove_skill(session.rows, skill, agent.skills, marker=marker, tools=_skill_tools(agent))


def _skill_tools(agent: Agent) -> tuple[str, ...]:
    """What the agent calls its tools for skills."""
    control = agent.tools.get(Tool.SKILL)
    return () if control is None else tuple(control.names)


def _end_of_evidence(session: Session) -> Ended | None:
    if session.transcript_problem is None:
        return None
    return Ended(kind=EndingKind.EVIDENCE_UNVERIFIED, detail=session.transcript_problem)


def _end_of_proof(phase: Phase, proven: bool | None) -> Ended | None:  # noqa: FBT001 - three values
    if proven:
        return None
    if proven is None:
        return Ended(
            kind=EndingKind.SKILL_NOT_INVOKED, detail=f"phase {phase.name}: use of {phase.skill} cannot be told"
        )
    return Ended(kind=EndingKind.SKILL_NOT_INVOKED, detail=f"phase {phase.name}: skill {phase.skill} was not used")


def _flag_of_proof(phase: Phase, proven: bool | None, session: Session) -> list[str]:  # noqa: FBT001 - three values
    said = session.report.skills_used if session.report is not None else None
    if said is None or proven is None or (phase.skill in {each.rpartition(":")[2] for each in said}) == proven:
        return []
    return [f"{phase.name}: skill {phase.skill}"]


def _end_of_phase(
    work: _Work, phase: Phase, changed: Change, phases: tuple[Phase, ...], places: tuple[str, ...]
) -> Ended | None:
    """Apply the phase's workspace rule: its artifact only, and never a skill."""
    if changed.excess is not None:
        return Ended(kind=EndingKind.LIMIT_EXCEEDED, detail=f"the change is larger than can be kept ({changed.excess})")
    if phase.kind is PhaseKind.REVIEW and (changed.entries or changed.refused):
        return Ended(kind=EndingKind.REVIEW_EVIDENCE_INVALID, detail="the tree that was reviewed has changed")
    rewritten = rewritten_skill(changed, phases, places)
    if rewritten is not None:
        detail = f"phase {phase.name} changed a skill: {rewritten.decode(errors='backslashreplace')}"
        return Ended(kind=evidence_kind(phase.name), detail=detail)
    if phase.produces is not None:
        try:
            work.artifacts[phase.name] = find_artifact(changed, phase.produces)
        except IntegrityError as problem:
            return Ended(kind=evidence_kind(phase.name), detail=str(problem))
    return None


def skill_places(directory: str | None) -> tuple[str, ...]:
    """Where skills lie in a tree for an agent that looks for its user's in this directory; pure."""
    return (SKILLS,) if directory is None or directory == SKILLS else (SKILLS, directory)


def read_skill_places(agent: Agent) -> tuple[str, ...]:
    """Those, and where else in a tree an agent looks for skills; pure."""
    return (*skill_places(agent.skills_directory), *agent.skills_besides)


def rewritten_skill(changed: Change, phases: tuple[Phase, ...], places: tuple[str, ...]) -> bytes | None:
    """The first changed path in a skill that a phase demands, or None; pure."""
    within = tuple(f"{skill}/".encode() for skill in demanded_skills(phases, places))
    return next((entry.path for entry in changed.entries if entry.path.startswith(within)), None)


def demanded_skills(phases: tuple[Phase, ...], places: tuple[str, ...]) -> tuple[str, ...]:
    """Where in a tree the skills would lie that some phase demands; pure."""
    return tuple(f"{place}/{each.skill}" for each in phases if each.skill is not None for place in places)


def between(before: Change, now: Change) -> Change:
    """What changed since an earlier look at the same layer, with what was undone as gone; pure."""
    known = {entry.path: entry for entry in before.entries}
    entries = [entry for entry in now.entries if known.get(entry.path) != entry]
    present = {entry.path for entry in now.entries}
    entries += [
        Entry(path=entry.path, kind=Kind.GONE, existed=True, content=b"")
        for entry in before.entries
        if entry.path not in present
    ]
    refused = tuple(each for each in now.refused if each not in before.refused)
    entries.sort(key=lambda entry: entry.path)
    return Change(entries=tuple(entries), refused=refused, excess=now.excess)


def shown_paths(paths: Sequence[bytes]) -> list[str]:
    """Paths as a row names them: the first ones, and how many more there are; pure."""
    shown: list[str] = []
    n_characters = 0
    for path in paths[:SHOWN_PATHS]:
        shown.append(path.decode(errors="backslashreplace"))
        n_characters += len(shown[-1])
        if n_characters > SHOWN_CHARACTERS:
            shown.pop()
            break
    more = len(paths) - len(shown)
    return [*shown, f"and {more} more"] if more else shown


def _change_fields(node: Node, work: _Work, prepared: Prepared, directory: Path, places: tuple[str, ...]) -> Row:
    """Keep the change, whole and as a patch, and measure it without plans and skills."""
    change, template = work.change, prepared.template
    packed = pack_change(change, commit=template.commit, tree_id=template.tree_id)
    write_durably(directory / CHANGE, packed, mode=0o644)
    left_out = [artifact.rpartition("/")[0] or artifact for artifact in work.artifacts.values()]
    churn = measure_churn(change, template, slot=node.slot, exclude=[*left_out, *places])
    if churn.patch:
        write_durably(directory / PATCH, Redactor().redact(churn.patch), mode=0o644)
    return {
        "diff_files": churn.files,
        "diff_insertions": churn.insertions,
        "diff_deletions": churn.deletions,
        "diff_digest": churn.digest,
        "patch_file": PATCH if churn.patch else None,
        "patch_truncated": churn.patch_truncated,
        "change_file": CHANGE,
        "refused_paths": shown_paths([each.path for each in change.refused]),
        "links_out": shown_paths(change.links_out),
    }


def _judge(node: Node, spec: BenchSpec, prepared: Prepared, work: _Work, directory: Path, *, changed: bool) -> Row:
    """Ask the authored check and the oracle, and say how the trial ended.

    An arm that has failed by then has failed, also where the host cannot judge what it left.

    Raises:
        HostError: The host failed, and all had gone well until then.
    """
    said, problem = None, None
    if work.change.excess is None and not (work.ended and ENDINGS[work.ended.kind].counts_as is CountsAs.VOID):
        try:
            said = _say(node, spec, prepared, work, directory)
        except HostError as failure:
            if work.ended is None:
                raise
            problem = str(failure)[:DETAIL_CHARACTERS]
    ended = work.ended or (None if said is None else end_of_judgement(said, changed=changed))
    redactor = Redactor()
    return {
        "ok": work.ended is None,
        **_verdict_fields(said),
        "resolved": said is not None and ended is None,
        "error_kind": None if ended is None else str(ended.kind),
        "error_detail": None if ended is None else redactor.redact_text(ended.detail)[:DETAIL_CHARACTERS],
        **({} if problem is None else {"judging_problem": problem}),
    }


def _say(node: Node, spec: BenchSpec, prepared: Prepared, work: _Work, directory: Path) -> Judgement:
    """Have the change judged, and keep what a judge needs to judge it again."""
    said = judge(
        node,
        spec.bench.task,
        prepared,
        work.change,
        timeout_s=spec.bench.timeout_s,
        change_sha256=hashlib.sha256((directory / CHANGE).read_bytes()).hexdigest(),
    )
    for name, record in said.records.items():
        write_durably(directory / name, record, mode=0o644)
    return said


def _judge_review(node: Node, spec: BenchSpec, prepared: Prepared, work: _Work, directory: Path) -> Row:
    """Score the review, and say how the trial ended. The authored check looks at the tree, which is as it was."""
    judged, ended, redactor = None, work.ended, Redactor()
    left, fields = work.left, _verdict_fields(None)
    if left is not None and not (ended and ENDINGS[ended.kind].counts_as is CountsAs.VOID):
        for name, content in ((REVIEW_FILE, left.review), (PROSE_FILE, left.prose)):
            if content is not None:
                write_durably(directory / name, redactor.redact(content), mode=0o644)
        try:
            labels = require_labels(node.blobs.read(spec.bench.task.oracle.files[0].blob))
        except (BlobLostError, UsageError) as problem:
            ended = ended or Ended(kind=EndingKind.ORACLE_UNAVAILABLE, detail=f"the labels: {problem}")
        else:
            judged = judge_review(left.review, labels)
            authored = check_base(node, spec.bench.task, prepared, timeout_s=spec.bench.timeout_s)
            ended = ended or end_of_review(judged, left, authored)
            fields |= _authored_fields(authored) | review_fields(judged, left)
    return {
        "ok": work.ended is None,
        **fields,
        "resolved": judged is not None and ended is None,
        "error_kind": None if ended is None else str(ended.kind),
        "error_detail": None if ended is None else redactor.redact_text(ended.detail)[:DETAIL_CHARACTERS],
    }


def _verdict_fields(said: Judgement | None) -> Row:
    if said is None:
        return {name: None for name in JUDGED_FIELDS}  # noqa: C420 - fromkeys has a type of its own
    oracle, source_only = said.oracle, said.source_only
    return {
        **_authored_fields(said.authored),
        "oracle_passed": oracle.passed,
        "oracle_output": "passed" if oracle.passed else "failed",
        "oracle_proof": None if oracle.proof is None else str(oracle.proof),
        "oracle_counts": None if oracle.counts is None else asdict(oracle.counts),
        "oracle_restored": list(oracle.restored),
        "oracle_passed_source_only": oracle.passed if source_only is None else source_only.passed,
        "tests_edited": list(said.flags.tests),
        "auto_loaded": list(said.flags.auto_loaded),
        "review": None,
        "review_evidence_valid": None,
    }


def _authored_fields(authored: CheckVerdict) -> Row:
    return {
        "authored_tests_passed": authored.passed,
        "authored_test_output": authored.output,
        "verify_output": authored.output,
    }
