"""Sealed results directories of the agent lane, written through the store as a sweep writes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from fairtrial.evidence.admit import REQUIRED_LIMITS
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import remove_tree
from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, describe_artifacts, write_intent, write_outcome
from fairtrial.store.journal import Journal
from fairtrial.store.layout import Results, create_results
from fairtrial.store.seal import write_seal
from fairtrial.store.sweep_file import write_sweep

Row = dict[str, object]
SWEEP = "bench-20261129T130100Z"


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """Makes the row of one resolved run of an arm, fit for promotion."""

    def make(arm: str, task: str = "t", run: int = 0, **fields: object) -> Row:
        return {
            "schema": "bench-row/1",
            "task": task,
            "class": "c",
            "arm": arm,
            "run": run,
            "error_kind": None,
            "resolved": True,
            "sandboxed": True,
            "sandbox_backend": "bubblewrap",
            "limits_enforced": dict.fromkeys(REQUIRED_LIMITS, "cgroup"),
            "isolation": "shared",
            "controls": "held",
            "usage_source": "wire",
            "usage_is_lower_bound": False,
            "model": "m-1",
            "benchmark_model": "m-1",
            "proposer_model": None,
            "agent": "bash-agent",
            "agent_version": "1",
            "effort": None,
            "scripted_model": False,
            "integrity_flags": [],
            "source": "fairtrial 1",
            "price_table": "p 1",
            **{name: f"{name} of {task}" for name in ("task_base_sha", "sanitized_task_sha", "task_prompt_digest")},
            **{name: f"{name} of {task}" for name in ("setup_digest", "verify_digest", "oracle_digest")},
            "oracle_command_digest": "c",
            "oracle_manifest_digest": "m",
            "setup_layer_digest": None,
            "environment_undeclared": {},
            "arm_digest": arm,
            "candidate_overlay_digest": None,
            "recorded_at": rfc3339(utc_now() - timedelta(days=1)),
            "input_tokens": 1000,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 100 + run,
            "duration_s": 10.0,
            "num_turns": 5,
            "diff_files": 1,
            "diff_insertions": 1,
            "diff_deletions": 0,
            "cost_usd": 1.0,
            **fields,
        }

    return make


@pytest.fixture
def make_pairs(make_row: Callable[..., Row]) -> Callable[..., list[Row]]:
    """Makes three runs of two arms on each task; `candidate` changes the candidate's rows."""

    def make(
        *, incumbent: str = "workflow", candidate: str = "candidate_workflow", tasks: int = 2, **changes: object
    ) -> list[Row]:
        rows: list[Row] = []
        for task in range(tasks):
            for run in range(3):
                rows.append(make_row(incumbent, f"t{task}", run))
                rows.append(make_row(candidate, f"t{task}", run, **{"cost_usd": 0.5, **changes}))
        return rows

    return make


@pytest.fixture
def write_results(tmp_path: Path) -> Iterator[Callable[..., Results]]:
    """Writes a results directory that holds the rows, each an attempt of its own, and seals it."""

    def write(
        rows: Iterable[Row],
        *,
        seal: bool = True,
        n_more_planned: int = 0,
        lane: str = "bench",
        more: Mapping[str, object] | None = None,
        before_seal: Callable[[Results], object] | None = None,
    ) -> Results:
        rows = list(rows)
        results = create_results(tmp_path / "results", lane="bench", now=utc_now(), base=tmp_path)
        keys = list(dict.fromkeys(f"bench/{row['task']}/{row['arm']}/{row['run']}" for row in rows))
        keys += [f"bench/never/{number}" for number in range(n_more_planned)]
        plan = [{"plan_index": at, "key": key} for at, key in enumerate(keys)]
        document = {"schema": "sweep/1", "sweep": SWEEP, "lane": lane, "plan": plan, **(more or {})}
        sweep = write_sweep(results, document)
        attempts: dict[str, int] = {}
        with Journal.open(results, sweep) as journal:
            for row in rows:
                key = f"bench/{row['task']}/{row['arm']}/{row['run']}"
                attempt = attempts[key] = attempts.get(key, 0) + 1
                identity = {"sweep": SWEEP, "key": key, "attempt": attempt}
                begun = rfc3339(utc_now())
                directory = write_intent(results, {"schema": INTENT_SCHEMA, **identity, "begun_utc": begun})
                outcome = {"schema": OUTCOME_SCHEMA, **identity, "artifacts": describe_artifacts(directory)}
                write_outcome(results, {**outcome, "ended_utc": rfc3339(utc_now()), "rows": [row]})
                journal.append([row], key=key, attempt=attempt, plan_index=keys.index(key))
            if before_seal is not None:
                before_seal(results)
            if seal:
                write_seal(results, journal)
        return results

    yield write
    if (tmp_path / "results").exists():
        remove_tree(tmp_path / "results")  # it may hold a frozen candidate, whose directories nobody may write
