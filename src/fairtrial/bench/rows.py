"""The row of one attempt: what stands in `results.jsonl` for it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from fairtrial.bench.assets import content_digest, manifest_digest, snapshot_digest
from fairtrial.bench.environment import Seen
from fairtrial.bench.index import BuiltIndex
from fairtrial.bench.node import FoundAgent
from fairtrial.bench.probes import probe_flags
from fairtrial.bench.proof import count_tool_calls, count_turns
from fairtrial.bench.session import Session
from fairtrial.bench.tool_server import wire_tools
from fairtrial.bench.transcript import TRANSCRIPT_SOURCE, Transcript
from fairtrial.errors import IntegrityError
from fairtrial.evidence.endings import ENDINGS, CountsAs, EndingKind
from fairtrial.gateway.control import Spend
from fairtrial.gateway.ledger import Ending, WireRow, read_ledger
from fairtrial.gateway.policy import ServedModel
from fairtrial.gateway.totals import cost_at_least
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import write_durably
from fairtrial.model.bench import PluginFiles
from fairtrial.model.sandbox import Limit, SandboxState
from fairtrial.model.trial import BenchSpec
from fairtrial.model.usage import NOTHING_USED, TokenUsage, at_least, sum_usage
from fairtrial.store.artifacts import digest_file, render_digest
from fairtrial.store.layout import INTENT
from fairtrial.store.strict_json import encode_object
from fairtrial.workspace.layers import Storage

__all__ = [
    "Row",
    "broken_row",
    "context_fields",
    "context_flags",
    "identity_of",
    "integrity_flags",
    "lost_row",
    "session_fields",
    "short_row",
    "void_row",
]

Row: TypeAlias = dict[str, object]
SCHEMA: Final = "bench-row/1"
CENT: Final = 0.01
DETAIL_CHARACTERS: Final = 2000
MOST_MEMBER_BYTES: Final = 64 << 10
CE_PLUGIN: Final = "compound-engineering"
"""The shipped preset's plugin, which has fields of its own."""
UNMEASURED: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "cost_usd",
    "duration_s",
    "num_turns",
)


def identity_of(spec: BenchSpec) -> Row:
    """What every row of an attempt says of the trial, measured or not."""
    bench, task, arm = spec.bench, spec.bench.task, spec.bench.arm
    placed = {skill.name: skill.digest for skill in arm.skills}
    ce_plugin = arm.plugin if arm.plugin is not None and arm.plugin.name == CE_PLUGIN else None
    return {
        "schema": SCHEMA,
        **spec.metadata,
        "task": task.id,
        "class": task.task_class,
        "arm": arm.name,
        "arm_digest": arm.digest,
        "run": bench.run,
        "block": bench.block,
        "position_in_block": bench.position_in_block,
        "block_order": list(bench.block_order),
        "agent": arm.agent,
        "model": arm.model,
        "benchmark_model": arm.model,
        "proposer_model": spec.metadata.get("proposer_model"),
        "candidate_overlay_digest": arm.overlay_digest,
        "effort": arm.effort,
        "context": arm.context,
        "task_ref": task.ref,
        "task_base_sha": task.commit,
        "task_prompt_digest": task.prompt_digest,
        "setup_digest": task.setup_digest,
        "setup_network": task.setup_network,
        "verify_digest": task.verify_digest,
        "isolation": str(task.isolation),
        "oracle_digest": task.oracle.digest,
        "oracle_command_digest": task.oracle.command_digest,
        "oracle_manifest_digest": task.oracle.manifest_digest,
        "task_asset_snapshot_digest": snapshot_digest(task),
        "task_asset_manifest_digest": manifest_digest((*task.copies, *task.dependencies)),
        "sandbox_dependency_content_digest": content_digest(task.dependencies),
        "sandbox_dependency_manifest_digest": manifest_digest(task.dependencies),
        "toolchain_digests": dict(zip(task.toolchains, task.toolchain_digests, strict=True)),
        "sanitized_graph_snapshot_digest": None,
        "sanitized_graph_manifest_digest": None,
        "plugin": None if arm.plugin is None else _plugin_fields(arm.plugin),
        "ce_plugin_version": None if ce_plugin is None else ce_plugin.version,
        "ce_plugin_manifest_digest": None if ce_plugin is None else ce_plugin.manifest_digest,
        "skill_digest": next(iter(placed.values())) if len(placed) == 1 else None,
        "skill_digests": placed,
        "recorded_at": rfc3339(utc_now()),
    }


def _plugin_fields(plugin: PluginFiles) -> Row:
    """Where a plugin comes from, as records tell it."""
    return {
        "name": plugin.name,
        "version": plugin.version,
        "manifest_schema_version": plugin.manifest_schema_version,
        "manifest_digest": plugin.manifest_digest,
        "file_count": plugin.file_count,
        "total_bytes": plugin.total_bytes,
    }


def void_row(spec: BenchSpec, kind: str, detail: str) -> Row:
    """The row of an attempt that is no evidence and measured nothing."""
    return {
        **identity_of(spec),
        **dict.fromkeys(UNMEASURED),
        "unmeasured_reason": "the attempt did not end by itself",
        "ok": False,
        "resolved": False,
        "authored_tests_passed": None,
        "oracle_passed": None,
        "skill_invoked": None,
        "session_ids": [],
        "plugin_seen": None,
        "transcript_missing": False,
        "transcript_artifacts": [],
        "diff_files": None,
        "diff_insertions": None,
        "diff_deletions": None,
        "diff_digest": None,
        "error_kind": kind,
        "error_detail": detail[:DETAIL_CHARACTERS],
        "usage_source": None,
        "cost_source": None,
        "usage_is_lower_bound": None,
        "reported_usage": None,
        "wire": None,
    }


def broken_row(spec: BenchSpec, kind: str, detail: str, directory: Path) -> Row:
    """The row of an attempt that could not go on for a fault of ours: what it had spent by then is not forgotten."""
    if any(directory.glob("wire-*.jsonl")):
        return lost_row(spec, kind, detail, directory)
    return void_row(spec, kind, detail)


def short_row(spec: BenchSpec, row: Row, detail: str) -> Row:
    """A row that is too long to be kept, without what is long in it: a failure, since the session made it so.

    What was void for a cause outside stays that.
    """
    kind, said = row["error_kind"], row["error_detail"]
    if kind is None or ENDINGS[EndingKind(str(kind))].counts_as is CountsAs.FAILURE:
        said = detail if kind is None else f"{detail} (after {kind}: {said})"
        kind = EndingKind.LIMIT_EXCEEDED
    ended = void_row(spec, str(kind), str(said))
    short = {name: value for name, value in row.items() if len(encode_object({name: value})) <= MOST_MEMBER_BYTES}
    ending = {name: ended[name] for name in ("ok", "resolved", "error_kind", "error_detail")}
    always = {name: value for name, value in ended.items() if name in row}
    return dict.fromkeys(row) | always | short | ending


def lost_row(spec: BenchSpec, kind: str, detail: str, directory: Path) -> Row:
    """The row of an attempt that was broken off: void, with what its wire logs say was spent, as a lower bound."""
    row = void_row(spec, kind, detail)
    rows: list[WireRow] = []
    logs = sorted(directory.glob("wire-*.jsonl")) if directory.is_dir() else []
    kept = sorted(directory.glob("transcript-*.jsonl")) if directory.is_dir() else []
    row["transcript_artifacts"] = [_artifact(Transcript(name=path.name, digest=digest_file(path))) for path in kept]
    # An agent that speaks to no model has no wire log: without a transcript none of its sessions came to an end.
    open_sessions = {_phase(path) for path in logs} - {_phase(path) for path in kept}
    row["transcript_missing"] = bool(open_sessions) or ((directory / INTENT).exists() and not kept)
    for path in logs:
        try:
            # The gateway may still be ending its log: what it writes from here on goes to a file without a name.
            write_durably(path, path.read_bytes(), mode=0o644)
            rows += read_ledger(path)
        except (OSError, IntegrityError) as problem:
            row["unmeasured_reason"] = f"{path.name}: {problem}"[:200]
            return row
    if not logs:
        return row
    calls = [each for each in rows if each.was_passed_on]
    usage = at_least(each.usage for each in calls)
    cost = cost_at_least(rows)
    return row | {
        **_tokens(usage),
        "cost_usd": None if cost is None else round(cost, 6),
        "num_turns": count_turns(rows),
        "usage_source": "wire",
        "cost_source": "wire",
        "usage_is_lower_bound": True,
        "wire": {"requests": len(calls), "complete": False},
        "unmeasured_reason": "the wire logs hold what was seen until the attempt was broken off",
    }


def session_fields(sessions: Sequence[Session], agent: FoundAgent, repository: Seen, storage: Storage) -> Row:
    """Usage, cost, turns and time over the sessions of an attempt: the wire's, with the client's claims beside.

    Args:
        sessions: The sessions.
        agent: The agent.
        repository: What the repository tells agents.
        storage: Where what the sessions wrote lay.
    """
    speaks = agent.agent.dialect is not None
    closed = [session.closed for session in sessions]
    totals = [each.totals for each in closed if each is not None]
    # What broke off was spent as well, as far as it was seen: hanging up early makes nothing free.
    spends = [spend for each in totals for spend in (each.spend, each.broken_spend)]
    known = len(totals) == len(sessions)
    usage = sum_usage(spend.usage for spend in spends) if known else None
    cost = _sum_of(spend.cost_usd for spend in spends) if known else None
    if not speaks:
        usage, cost = NOTHING_USED, 0.0
    return {
        **_tokens(usage),
        "cost_usd": cost,
        "duration_s": round(sum(session.result.elapsed_ms for session in sessions) / 1000, 1),
        "num_turns": sum(count_turns(session.rows) for session in sessions),
        "tool_calls": _add(count_tool_calls(session.rows) for session in sessions),
        "usage_source": "wire" if speaks else None,
        "cost_source": "wire" if speaks and cost is not None else None,
        "usage_is_lower_bound": None if usage is None else usage.is_lower_bound,
        "reported_usage": [_reported(session) for session in sessions],
        "wire": _wire(sessions) if speaks else None,
        "session_ids": [
            session.report.session_id for session in sessions if session.report and session.report.session_id
        ],
        "sessions": [_session(session) for session in sessions],
        "transcript_missing": any(session.transcript is None for session in sessions),
        "transcript_artifacts": [
            _artifact(session.transcript) for session in sessions if session.transcript is not None
        ],
        "evidence_diagnostics": [s.transcript_problem for s in sessions if s.transcript_problem is not None],
        "agent_version": agent.probe.version,
        "environment": [{"phase": session.phase, **session.environment} for session in sessions],
        "environment_repository": repository,
        "environment_undeclared": _undeclared(sessions, agent, repository),
        "limits_enforced": _enforced(sessions[0], storage) if sessions else {},
    }


def _enforced(session: Session, storage: Storage) -> dict[Limit, str]:
    """What enforced each limit; of those on what was written it depends on where that lay."""
    room = "sized tmpfs" if storage is Storage.MEMORY else "watchdog"
    return {
        limit: room if limit in {Limit.DISK, Limit.INODES} else mechanism
        for limit, mechanism in session.result.enforced.items()
    }


def context_fields(index: BuiltIndex | None, sessions: Sequence[Session]) -> Row:
    """What an arm had of a context and what it made of it; the digests' names are those of the first such index."""
    if index is None:
        return {"context_index": None, "context_sessions": []}
    server = index.server
    described = {"name": server.name, "version": server.version, "protocol": server.protocol}
    offered = [name for name in server.tools if name not in index.mutating]
    return {
        "sanitized_graph_snapshot_digest": index.snapshot_digest,
        "sanitized_graph_manifest_digest": index.manifest_digest,
        "context_index": {
            "version": index.version,
            "plugin_sha256": index.plugin_sha256,
            "commit": index.commit,
            "files": index.files,
            "bytes": index.bytes,
            "markers": len(index.markers),
            "withheld": list(index.withheld),
            "server": described,
            "tools": offered,
            "mutating": list(index.mutating),
        },
        "context_sessions": [_context_session(session, index.context, offered) for session in sessions],
    }


def context_flags(index: BuiltIndex | None, sessions: Sequence[Session]) -> list[str]:
    """Phases in which the model was told of no tool of the arm's context, or whose server ended before the session."""
    if index is None:
        return []
    flags: list[str] = []
    for session in sessions:
        if session.rows and not wire_tools(session.rows, index.context, index.server.tools).offered:
            flags.append(f"{session.phase}: context was not there")
        if session.tools is not None and session.tools.ended != SandboxState.STOPPED:
            flags.append(f"{session.phase}: context ended early")
    return flags


def _context_session(session: Session, context: str, tools: Sequence[str]) -> Row:
    wire, seen = wire_tools(session.rows, context, tools), session.tools
    return {
        "phase": session.phase,
        "offered": list(wire.offered),
        "calls": dict(wire.calls),
        "server_ended": None if seen is None else seen.ended,
        "server_connections": None if seen is None else seen.connections,
        "server_listed": None if seen is None else list(seen.listed),
        "server_calls": None if seen is None else dict(seen.calls),
        "server_failed_calls": None if seen is None else dict(seen.failed_calls),
        "server_refused_calls": None if seen is None else dict(seen.refused_calls),
    }


def _undeclared(sessions: Sequence[Session], agent: FoundAgent, repository: Seen) -> Row:
    """What arms must see alike: all that none of them asked for."""
    name = agent.plugin.name
    shared = {
        f"repository {aspect}": repository[aspect] for aspect in ("guidance", "configuration", "mcp_servers", "hooks")
    }
    labelled = {label: value for session in sessions for label, value in session.undeclared.items()}
    return {**shared, **labelled, f"{name} version": agent.probe.version, f"{name} plugin": agent.plugin.file_sha256}


def integrity_flags(sessions: Sequence[Session], effort: str | None) -> list[str]:
    """What the agent's own words, or the model that answered, say otherwise than they should, and what was tried.

    Args:
        sessions: The sessions.
        effort: What the arm's model is to be told; None for nothing.
    """
    flags: list[str] = []
    for session in sessions:
        if any(row.served_as is ServedModel.OTHER for row in session.rows):
            flags.append(f"{session.phase}: other model")
        turns = [row for row in session.rows if row.was_passed_on and row.n_tools and row.agent_claim is None]
        # gemini-cli says it in capitals; claude-code leaves it out or lowers it for some models.
        if effort is not None and any((row.effort or "").lower() != effort for row in turns):
            flags.append(f"{session.phase}: effort")
        report, closed = session.report, session.closed
        if report is None or closed is None:
            continue
        spend = closed.totals.spend
        if report.usage is not None and _tokens(report.usage) != _tokens(spend.usage):
            flags.append(f"{session.phase}: usage")
        if report.cost_usd is not None and spend.cost_usd is not None and abs(report.cost_usd - spend.cost_usd) > CENT:
            flags.append(f"{session.phase}: cost")
        if report.is_error is False and closed.provider_fault is not None:
            flags.append(f"{session.phase}: says success after {closed.provider_fault}")
        elif report.is_error is False and turns and turns[-1].ending is Ending.CLIENT_GONE:
            flags.append(f"{session.phase}: says success after a reply that it did not wait for")
    return [*flags, *probe_flags([row for session in sessions for row in session.rows])]


def _tokens(usage: TokenUsage | None) -> Row:
    return {
        "input_tokens": None if usage is None else usage.uncached_input,
        "cache_creation_input_tokens": None if usage is None else usage.cache_write,
        "cache_read_input_tokens": None if usage is None else usage.cache_read,
        "output_tokens": None if usage is None else usage.output,
    }


def _sum_of(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for cost in costs:
        if cost is None:
            return None
        total += cost
    return round(total, 6)


def _wire(sessions: Sequence[Session]) -> Row:
    totals = [session.closed.totals for session in sessions if session.closed is not None]
    broken = at_least(each.broken_spend.usage for each in totals)
    by_agent = [each.by_agent for each in totals if each.by_agent is not None]
    return {
        "requests": sum(each.requests for each in totals),
        "failed_requests": sum(each.failed_requests for each in totals),
        "retries": sum(each.retries for each in totals),
        "refused": _add(each.refused for each in totals),
        "by_model": _tokens_by(each.by_model for each in totals),
        "by_agent": _tokens_by(by_agent) if len(by_agent) == len(totals) else None,
        "by_ending": _add(each.by_ending for each in totals),
        "limited_requests": sum(each.limited_requests for each in totals),
        "broken_tokens": _tokens(broken),
        "broken_is_lower_bound": broken.is_lower_bound,
        "broken_cost_usd": _sum_of(each.broken_spend.cost_usd for each in totals),
        "cost_without_cache_usd": _sum_of(
            spend.cost_without_cache_usd for each in totals for spend in (each.spend, each.broken_spend)
        ),
        "unmeasured_requests": sum(each.unmeasured_requests for each in totals),
        "other_models": sorted({name for each in totals for name in each.other_models}),
        "provider_ms": round(sum(each.provider_ms for each in totals), 3),
        "backed_off_ms": round(sum(each.backed_off_ms for each in totals), 3),
        "waited_ms": round(sum(s.closed.waited_ms for s in sessions if s.closed is not None), 3),
        "egress_refused": [what for s in sessions if s.closed is not None for what in s.closed.egress_refused],
        "ledgers": [s.closed.ledger_sha256 for s in sessions if s.closed is not None],
        "complete": len(totals) == len(sessions),
    }


def _tokens_by(spends: Iterable[Mapping[str, Spend]]) -> Row:
    """The tokens of all sessions together, by name."""
    found: dict[str, list[TokenUsage]] = {}
    for each in spends:
        for name, spend in each.items():
            found.setdefault(name, []).append(spend.usage)
    return {name: _tokens(sum_usage(usages)) for name, usages in found.items()}


def _reported(session: Session) -> Row | None:
    report = session.report
    if report is None:
        return None
    return {
        "phase": session.phase,
        "usage": None if report.usage is None else _tokens(report.usage),
        "cost_usd": report.cost_usd,
        "turns": report.turns,
        "tool_calls": None if report.tool_calls is None else dict(report.tool_calls),
        "skills_used": None if report.skills_used is None else list(report.skills_used),
        "is_error": report.is_error,
    }


def _phase(path: Path) -> str:
    """Of the file of a session, `transcript-<phase>.jsonl` or `wire-<phase>.jsonl`, the phase."""
    return path.stem.partition("-")[2]


def _artifact(transcript: Transcript) -> Row:
    return {"path": transcript.name, **render_digest(transcript.digest), "source": TRANSCRIPT_SOURCE}


def _session(session: Session) -> Row:
    result = session.result
    return {
        "phase": session.phase,
        "state": str(result.state),
        "returncode": result.returncode,
        "limit": None if result.limit is None else str(result.limit),
        "elapsed_ms": round(result.elapsed_ms, 3),
        "cpu_s": result.cpu_s,
        "peak_memory_bytes": result.peak_memory_bytes,
        "stdout_bytes": result.stdout.n_bytes,
        "stderr_bytes": result.stderr.n_bytes,
    }


def _add(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
