"""`interrupted_publication_after_request_v1`: a complete request, then silence.

Nobody can know what became of it, and nothing is stored anywhere: what is measured is what the client claims, what it
keeps, and whether it sends again on its own. Receipt of a request is not durability, so no durability is claimed either
way. Its commands are Oak's, since the fixture speaks Oak's protocol.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, cast

from fairtrial.errors import HostError
from fairtrial.evidence.publication import observe_client, publication_fields
from fairtrial.host.usage import DiskUsage, disk_usage
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.seed import NOTES
from fairtrial.loop.stage import Stage
from fairtrial.loop.totals import common_total
from fairtrial.loop.work import edit_step, payload
from fairtrial.model.loop import Place, Step
from fairtrial.model.process import ProcessResult
from fairtrial.wire.fixture import FixtureLedger

__all__ = ["play_interrupted"]

PHASE: Final = "publication"
REPOSITORY: Final = "oak/repo"
ATTEMPT_LIMIT_S: Final = 30.0
FAILURES_EXPECTED: Final = tuple(range(1, 128))
"""Exit status 0 would be a claim that nobody confirmed."""

PLANNED: Final = ("setup.init", "setup.edit", "setup.checkpoint", "publication.attempt", "reconcile.local_state")
INCOMPLETE: Final = "interrupted_publication_evidence_incomplete"
NO_DURABILITY: Final = "the fixture stores nothing: no durability is claimed either way"


def play_interrupted(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Make a commit, publish it to the fixture, and see what the client says and keeps."""
    place = replace(stage.places[PHASE], remote=stage.remote)
    oak = stage.spec.loop.variant.binary or "oak"
    if not _set_up(stage, builder, rows, place, oak):
        return _total(stage, rows, passed=None)
    head_before = stage.subject.client_head(stage.probe, place)
    payload_before, usage_before = _payload_sha256(place), disk_usage(place.workspace)
    offers_json = b"--json" in stage.probe((oak, "push", "--help"), cwd=place.workspace).stdout.head
    options = ("--json",) if offers_json else ()
    push = Step(
        argv=(oak, "push", "-r", place.remote, "--repo", REPOSITORY, *options),
        cwd=place.workspace,
        expected=FAILURES_EXPECTED,
    )
    attempt = _attempt(stage, builder, rows, push)
    asked = Step(argv=(oak, "agent", "state", "--json", "--compact"), cwd=place.workspace)
    state = stage.run_step(asked)
    reconcile = builder.step("reconcile.local_state", "vcs", stage.shown(asked.argv), asked.expected, state)
    rows.append(reconcile | {"transcript_line": len(stage.transcript) - 1})
    ledger = _fixture(stage)
    evidence = _fixture_evidence(ledger) | {
        "local_head_before": head_before,
        "local_head_after": stage.subject.client_head(stage.probe, place),
        "status_after": _state(state),
        "worktree_payload_before": payload_before,
        "worktree_payload_after": _payload_sha256(place),
    }
    fields = publication_fields(observe_client(attempt, json_requested=offers_json), evidence)
    usage_after = disk_usage(place.workspace)
    passed = (
        fields["fixture_received_complete_request_before_disconnect"] is True
        and fields["mutation_requests_observed"] == 1
        and fields["local_head_preserved"] is True
        and fields["local_work_preserved"] is True
        and attempt["timed_out"] is False
        and reconcile["returncode"] == 0
    )
    return (
        _total(stage, rows, passed=passed)
        | fields
        | {
            "push_json_supported": offers_json,
            "workspace_usage_before": _usage(usage_before),
            "workspace_usage_after": _usage(usage_after),
            "network_bytes": ledger.received_bytes + ledger.sent_bytes,
            "network_up_bytes": ledger.received_bytes,
            "network_down_bytes": ledger.sent_bytes,
            "network_requests": len(ledger.publications) + ledger.n_other,
        }
    )


def _set_up(stage: Stage, builder: RowBuilder, rows: list[Row], place: Place, oak: str) -> bool:
    """Make a repository with one commit; false when a step failed."""
    place.workspace.mkdir()
    groups: dict[str, Sequence[Step]] = {
        "setup.init": (Step(argv=(oak, "init"), cwd=place.workspace),),
        "setup.edit": (edit_step(place, payload(stage, PHASE)),),
        "setup.checkpoint": (Step(argv=(oak, "commit"), cwd=place.workspace),),
    }
    for operation, steps in groups.items():
        try:
            results = stage.prepare(steps)
        except HostError as problem:
            row = builder.harness(operation, elapsed_ms=None, n_commands=len(steps), returncode=1)
            rows.append(row | {"elapsed_ms_reason": "it failed", "stderr": str(problem)})
            return False
        elapsed_ms = sum(result.elapsed_ms or 0.0 for result in results)
        rows.append(builder.harness(operation, elapsed_ms=elapsed_ms, n_commands=len(results)))
    return True


def _attempt(stage: Stage, builder: RowBuilder, rows: list[Row], push: Step) -> Row:
    """Publish once; the row keeps both streams in full, since a decision reads them."""
    result = stage.run_step(push, limit_s=ATTEMPT_LIMIT_S)
    row = builder.step("publication.attempt", "vcs", stage.shown(push.argv), push.expected, result)
    row |= {
        "transcript_line": len(stage.transcript) - 1,
        "stdout": result.stdout.tail.decode("utf-8", "backslashreplace"),
        "stderr": result.stderr.tail.decode("utf-8", "backslashreplace"),
    }
    rows.append(row)
    return row


def _fixture(stage: Stage) -> FixtureLedger:
    ledger = None if stage.server is None else stage.server.ledger()
    if ledger is None or ledger.fixture is None or ledger.internal_errors:
        raise HostError("the fixture failed: it gave no ledger, or failed inside; see wire.json")
    return ledger.fixture


def _fixture_evidence(ledger: FixtureLedger) -> Row:
    """What the fixture saw: of several requests the first one's framing, and the bytes of all."""
    first = next(iter(ledger.publications), None)
    return {
        "request_count": len(ledger.publications),
        "request_bytes": sum(each.received_bytes for each in ledger.publications) if first else None,
        "declared_request_bytes": None if first is None else first.declared_bytes,
        "request_framing_valid": None if first is None else first.framing_valid,
        "request_body_timed_out": None if first is None else first.body_timed_out,
    }


def _state(result: ProcessResult) -> Row | None:
    """What the client's compact state says: a key that is left out is false or null; None when there is no state."""
    try:
        printed: object = json.loads(result.stdout.tail)
    except ValueError:
        return None
    if not isinstance(printed, dict):
        return None
    state = cast("Row", printed)
    return {"needs_push": state.get("needs_push") is True, "dirty": state.get("dirty")}


def _payload_sha256(place: Place) -> str | None:
    path = place.workspace / NOTES
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _usage(usage: DiskUsage | None) -> Row | None:
    return None if usage is None else usage.as_record()


def _total(stage: Stage, rows: Sequence[Row], *, passed: bool | None) -> Row:
    """The total row; `passed` is None when the set-up failed."""
    total = common_total(stage, rows, PLANNED, holds=None, failures=[])
    total |= {
        "truth_sources": [],
        "acquisition_models": {},
        "compatibility_probe_calls": 0 if passed is None else 1,
        "harness_probe_calls": stage.n_probe_calls,
        "durability_reason": NO_DURABILITY,
    }
    if passed is None:
        total |= {"network_bytes": None, "network_bytes_reason": "the set-up failed: nothing was sent"}
    if passed is not True:
        total |= {"returncode": 1, "stderr": INCOMPLETE}
    return total
