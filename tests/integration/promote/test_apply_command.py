"""From a bound candidate to a changed project, by the commands; and everything that refuses."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fairtrial.cli import apply as cli_apply
from fairtrial.cli.main import run
from fairtrial.errors import FairtrialError, IntegrityError, UsageError
from fairtrial.evolve.bound import Bound
from fairtrial.evolve.next_step import Bounds
from fairtrial.evolve.record import EvolutionFiles
from fairtrial.evolve.values import OUTCOME_SCHEMA, Ending, EvolveOptions, Step, StepKind, StepOutcome, StepResult
from fairtrial.evolve.work import Work
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.promote.apply import NotPromotableError, apply_promotion, require_promotable
from fairtrial.promote.binding import Binding, BoundArm, BoundPlugin, BoundPolicy, bind_candidate
from fairtrial.promote.promotion import (
    RunStatus,
    conclude,
    make_promotion,
    read_binding,
    read_promotion,
    write_promotion,
)
from fairtrial.promote.summary import print_promotion
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.seal import read_seal
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.workspace.overlay import freeze_overlay, read_overlay
from fairtrial.workspace.skill_layout import SkillLayout

pytestmark = pytest.mark.needs("git")

LAYOUT = SkillLayout(root=".claude/skills", mirrors=("shipped/skills",), skills=("plan", "work"))
CANONICAL, MIRROR = ".claude/skills/plan/SKILL.md", "shipped/skills/plan/SKILL.md"
ARMS = {"workflow": ("plan", "work"), "workflow_direct": ("work",)}
PAIR = ("workflow", "candidate_workflow")
DIGEST = "ab" * 32
PLUGIN = BoundPlugin(name="acme", version="1.2.3", manifest_digest=DIGEST)
TASK = {
    "id": "t0",
    **dict.fromkeys(("prompt_digest", "verify_digest", "oracle_digest", "oracle_command_digest"), DIGEST),
    "oracle_manifest_digest": DIGEST,
    "sandbox_dependency_content_digest": DIGEST,
    "sandbox_dependency_manifest_digest": DIGEST,
    "oracle_files": [{"target": "test.py", "sha256": DIGEST, "size": 3}],
}
Row = dict[str, Any]
Capture = pytest.CaptureFixture[str]


def git(project: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose skill lies in its canonical place and in one mirror."""
    root = tmp_path / "project"
    for path in (CANONICAL, MIRROR, ".claude/skills/work/SKILL.md", "shipped/skills/work/SKILL.md"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("old prose\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """A candidate that changes the plan skill."""
    path = tmp_path / "overlay" / CANONICAL
    path.parent.mkdir(parents=True)
    path.write_text("new prose\n")
    return tmp_path / "overlay"


def bind(project: Path, candidate: Path, **changes: object) -> Binding:
    asked: dict[str, Any] = {
        "layout": LAYOUT,
        "project": project,
        "asked_arms": PAIR,
        "bound_arms": tuple(BoundArm(name=name, digest=name, effort="high", plugin=PLUGIN) for name in PAIR),
        "arms": ARMS,
        "benchmark_model": "m-1",
        "policy": BoundPolicy(),
        **changes,
    }
    return bind_candidate(read_overlay(candidate, LAYOUT), **asked)


@pytest.fixture
def make_sealed(
    project: Path, candidate: Path, make_pairs: Callable[..., list[Row]], write_results: Callable[..., Results]
) -> Callable[..., Results]:
    """Writes the sealed results of a sweep on the candidate, with its promotion as `edit` leaves it."""

    def make(
        *,
        edit: Callable[[dict[str, Any]], object] = lambda _document: None,
        status: RunStatus = RunStatus.COMPLETE,
        generated: datetime | None = None,
        more: dict[str, object] | None = None,
        n_more_planned: int = 0,
        policy: BoundPolicy | None = None,
        oldest: datetime | None = None,
        **changes: object,
    ) -> Results:
        binding = bind(project, candidate, policy=policy or BoundPolicy())
        rows = make_pairs(tasks=1, candidate_overlay_digest=binding.candidate_overlay_digest, **changes)
        if oldest is not None:
            rows[0]["recorded_at"] = rfc3339(oldest)

        def before_seal(results: Results) -> None:
            freeze_overlay(read_overlay(candidate, LAYOUT), results.root / "candidate")
            assert read_binding(read_sweep(results)) == binding
            assert conclude(results, now=generated or utc_now(), status=status) is not None
            document = json.loads(results.promotion_json.read_text())
            edit(document)
            results.promotion_json.write_text(json.dumps(document))

        document = {"promotion": binding.as_json(), "tasks": [TASK], **(more or {})}
        return write_results(rows, more=document, before_seal=before_seal, n_more_planned=n_more_planned)

    return make


def prose(project: Path) -> list[str]:
    return [(project / path).read_text() for path in (CANONICAL, MIRROR)]


def apply(results: Results, project: Path, *, now: datetime | None = None) -> tuple[str, ...]:
    return apply_promotion(results, project, now=now or utc_now(), watch=lambda _step, _path: None)


def test_a_promoted_candidate_replaces_every_place_and_only_the_work_tree(
    make_sealed: Callable[..., Results], project: Path, capsys: Capture
) -> None:
    results = make_sealed()
    assert run(["apply", str(results.root), "--project", str(project), "--check"]) == 0
    assert capsys.readouterr().out == "may be applied\n"
    assert prose(project) == ["old prose\n"] * 2
    assert run(["apply", str(results.root), "--project", str(project), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"schema": "apply/1", "replaced": [CANONICAL, MIRROR], "recovered": []}
    assert prose(project) == ["new prose\n"] * 2
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, check=True, capture_output=True, text=True)
    assert status.stdout == f" M {CANONICAL}\n M {MIRROR}\n"
    assert run(["apply", str(results.root), "--project", str(project)]) == 2
    assert "drifted" in capsys.readouterr().err


def test_the_promotion_is_read_as_it_was_written(make_sealed: Callable[..., Results]) -> None:
    promotion = read_promotion(make_sealed())
    assert (promotion.promotable, promotion.run_status) == (True, RunStatus.COMPLETE)
    (decision,) = promotion.decisions
    assert (decision.incumbent_arm, decision.candidate_arm) == PAIR
    assert decision.decision["decision"] == "promote"
    assert promotion.binding.required_candidate_arms == ("candidate_workflow",)
    assert promotion.binding.target_base_digests.keys() == {CANONICAL, MIRROR}


def test_evidence_expires_90_days_after_its_oldest_row_however_late_the_sweep_ended(
    make_sealed: Callable[..., Results], project: Path
) -> None:
    oldest = utc_now() - timedelta(days=80)
    results = make_sealed(oldest=oldest)
    promotion = read_promotion(results)
    assert promotion.promotable
    assert promotion.evidence_expires_at == rfc3339(oldest + timedelta(days=90))
    refuse(results, project, NotPromotableError, "expired on", now=oldest + timedelta(days=90, seconds=5))


def test_an_expiry_of_91_days_after_the_oldest_row_is_refused(
    make_sealed: Callable[..., Results], project: Path
) -> None:
    oldest = utc_now() - timedelta(days=80)
    late = rfc3339(oldest + timedelta(days=91))
    results = make_sealed(oldest=oldest, edit=lambda document: document.update(evidence_expires_at=late))
    refuse(results, project, NotPromotableError, "later than 90 days after its oldest row")


def refuse(
    results: Results, project: Path, error: type[FairtrialError], words: str, now: datetime | None = None
) -> None:
    with pytest.raises(error, match=words):
        apply(results, project, now=now)
    assert prose(project) == ["old prose\n"] * 2


def put(document: dict[str, Any], path: str, value: object) -> None:
    *above, last = path.split(".")
    for name in above:
        document = document[int(name) if name.isdigit() else name]
    document[int(last) if last.isdigit() else last] = value


@pytest.mark.parametrize(
    ("path", "value", "error", "words"),
    [
        ("schema", "promotion/2", IntegrityError, "'promotion/2' is not known here"),
        ("schema", 3, IntegrityError, "names no schema"),
        ("extra", 1, IntegrityError, "extra"),
        ("promotable", False, NotPromotableError, "what it says of being promotable"),
        ("run_status", "aborted", NotPromotableError, "was broken off"),
        ("sweep.id", "other", NotPromotableError, "stands on another sweep"),
        ("sweep.sweep_json_sha256", DIGEST, NotPromotableError, "stands on another sweep"),
        ("binding.benchmark_model", "m-2", NotPromotableError, "benchmark_model is not what the sweep fixed"),
        ("binding.proposer_model", "m-2", NotPromotableError, "proposer_model is not what"),
        ("binding.candidate_origin", "model-proposer", NotPromotableError, "candidate_origin is not what"),
        ("binding.candidate_overlay_digest", DIGEST, NotPromotableError, "candidate_overlay_digest is not what"),
        ("binding.base_commit", "0" * 40, NotPromotableError, "base_commit is not what"),
        ("binding.target_base_digests", {CANONICAL: DIGEST}, NotPromotableError, "target_base_digests is not what"),
        ("binding.required_candidate_arms", [], NotPromotableError, "required_candidate_arms is not what"),
        ("binding.arms", [], NotPromotableError, "arms is not what"),
        ("binding.arms.0.digest", DIGEST, NotPromotableError, "arms is not what"),
        ("binding.arms.1.effort", "low", NotPromotableError, "arms is not what"),
        ("binding.arms.1.plugin", None, NotPromotableError, "arms is not what"),
        ("binding.arms.0.plugin.version", "1.2.4", NotPromotableError, "arms is not what"),
        ("binding.arms.0.plugin.manifest_digest", "cd" * 32, NotPromotableError, "arms is not what"),
        ("binding.policy.min_runs", 1, NotPromotableError, "policy is not what"),
        ("binding.policy.metric", "num_turns", NotPromotableError, "policy is not what"),
        ("binding.policy.max_age_days", 900, NotPromotableError, "policy is not what"),
        ("binding.policy.rehearsal", True, NotPromotableError, "policy is not what"),
        ("rehearsal", True, NotPromotableError, "a rehearsal is not what the sweep fixed"),
        ("selected_tasks", [], NotPromotableError, "names no task"),
        ("selected_tasks.0.ref", "HEAD", NotPromotableError, "tasks are not the sweep's"),
        ("decisions", [], NotPromotableError, "each once and in order"),
        ("decisions.0.candidate_arm", "candidate_other", NotPromotableError, "each once and in order"),
        ("decisions.0.incumbent_arm", "baseline", NotPromotableError, "its incumbent is workflow"),
        ("decisions.0.decision.decision", "keep_incumbent", NotPromotableError, "give another decision"),
        ("decisions.0.decision.median_improvement_pct", 60.0, NotPromotableError, "give another decision"),
        ("decisions.0.as_failures.reasons", [], NotPromotableError, "give another decision"),
        ("decisions.0.false_promotion.n_promoted", 7, NotPromotableError, "rate of false promotion"),
        ("decisions.0.promotable", False, NotPromotableError, "is not promotable"),
        ("decisions.0.aggregates.t0.workflow.medians.cost_usd", 9.0, NotPromotableError, "not those of the rows"),
        ("decisions.0.aggregates.t0.workflow.medians.cost_usd", -1.0, NotPromotableError, "figure is negative"),
        ("decisions.0.aggregates.t0.workflow.resolved", 4, NotPromotableError, "do not add up"),
        ("decisions.0.aggregates.t0.workflow.valid_runs", 2, NotPromotableError, "do not add up"),
        ("decisions.0.aggregates.t0.workflow.runs", True, IntegrityError, "runs"),
        ("decisions.0.aggregates.t0.workflow.resolved", 3.0, IntegrityError, "resolved"),
        ("generated_at", "yesterday", NotPromotableError, "generated_at is no moment"),
        ("generated_at", "2026-11-29T12:00:00", NotPromotableError, "names no time zone"),
        ("evidence_expires_at", "2020-01-01T00:00:00Z", NotPromotableError, "expires before it was generated"),
    ],
)
def test_a_promotion_that_says_anything_else_is_refused(
    path: str,
    value: object,
    error: type[FairtrialError],
    words: str,
    make_sealed: Callable[..., Results],
    project: Path,
) -> None:
    refuse(make_sealed(edit=lambda document: put(document, path, value)), project, error, words)


def test_a_decision_that_stands_twice_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed(edit=lambda document: document["decisions"].append(document["decisions"][0]))
    refuse(results, project, NotPromotableError, "each once and in order")


@pytest.mark.parametrize(
    "digest",
    [
        *("prompt_digest", "verify_digest", "oracle_digest", "oracle_command_digest", "oracle_manifest_digest"),
        *("sandbox_dependency_content_digest", "sandbox_dependency_manifest_digest"),
    ],
)
@pytest.mark.parametrize("value", [None, "", "ab", DIGEST.upper(), 7])
def test_a_task_that_is_not_pinned_is_refused(
    digest: str, value: object, make_sealed: Callable[..., Results], project: Path
) -> None:
    results = make_sealed(more={"tasks": [{**TASK, digest: value}]})
    refuse(results, project, NotPromotableError, f"task t0: {digest} is no digest")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "names no file of its oracle"),
        (None, "names no file of its oracle"),
        ([{"target": "", "sha256": DIGEST, "size": 1}], "is not pinned"),
        ([{"target": "t", "sha256": "x", "size": 1}], "is not pinned"),
        ([{"target": "t", "sha256": DIGEST, "size": -1}], "is not pinned"),
        ([{"target": "t", "sha256": DIGEST, "size": True}], "is not pinned"),
        (["t"], "is not pinned"),
    ],
)
def test_an_oracle_that_is_not_pinned_is_refused(
    files: object, words: str, make_sealed: Callable[..., Results], project: Path
) -> None:
    refuse(make_sealed(more={"tasks": [{**TASK, "oracle_files": files}]}), project, NotPromotableError, words)


def test_no_task_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    refuse(make_sealed(more={"tasks": []}), project, NotPromotableError, "names no task")


def test_expired_evidence_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    later = utc_now() + timedelta(days=90, seconds=5)
    refuse(results, project, NotPromotableError, "expired on", now=later)
    refuse(results, project, NotPromotableError, "older than 90 days", now=later)


def test_an_expiry_of_91_days_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    late = rfc3339(utc_now() + timedelta(days=91))
    results = make_sealed(edit=lambda document: document.update(evidence_expires_at=late))
    refuse(results, project, NotPromotableError, "later than 90 days after")


def test_a_promotion_from_tomorrow_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    refuse(
        make_sealed(generated=utc_now() + timedelta(days=1)), project, NotPromotableError, "generated later than now"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cost_usd": 0.99}, "is not promotable"),
        ({"sandbox_backend": "none"}, "not run in a sandbox"),
        ({"model": "m-2"}, "of model 'm-2'"),
        ({"candidate_overlay_digest": DIGEST}, "not measured with this candidate"),
        ({"arm_digest": DIGEST}, "candidate_workflow: its rows were not measured with the arm that the sweep fixed"),
        ({"error_kind": "oracle-failed"}, "is not promotable"),
        ({"error_kind": "infra-error"}, "is not promotable"),
    ],
)
def test_rows_that_do_not_promote_are_refused(
    changes: dict[str, object],
    words: str,
    project: Path,
    candidate: Path,
    make_pairs: Callable[..., list[Row]],
    write_results: Callable[..., Results],
) -> None:
    binding = bind(project, candidate)
    rows = make_pairs(tasks=1, **{"candidate_overlay_digest": binding.candidate_overlay_digest, **changes})

    def before_seal(results: Results) -> None:
        freeze_overlay(read_overlay(candidate, LAYOUT), results.root / "candidate")
        sweep = read_sweep(results)
        read = lambda: read_rows(results.results_jsonl, sweep_id=sweep.sweep)  # noqa: E731
        made = make_promotion(sweep, binding, read, now=utc_now(), status=RunStatus.COMPLETE, n_uncounted=0)
        if not changes.keys() & {"candidate_overlay_digest", "arm_digest"}:
            assert not made.promotable
        lying = tuple(replace(each, promotable=True) for each in made.decisions)
        write_promotion(results, replace(made, promotable=True, decisions=lying))

    more = {"promotion": binding.as_json(), "tasks": [TASK]}
    refuse(write_results(rows, more=more, before_seal=before_seal), project, NotPromotableError, words)


def test_a_promotion_after_an_outage_is_written_and_never_promotable(
    make_sealed: Callable[..., Results], project: Path
) -> None:
    results = make_sealed(status=RunStatus.ABORTED)
    assert not read_promotion(results).promotable
    refuse(results, project, NotPromotableError, "was broken off")


def test_planned_trials_that_never_ran_are_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    refuse(make_sealed(n_more_planned=1), project, NotPromotableError, "1 planned trials have no counting attempt")


def test_damaged_evidence_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    results.promotion_json.write_text(results.promotion_json.read_text() + " ")
    refuse(results, project, IntegrityError, "promotion.json")


def test_unsealed_evidence_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    results.seal_json.unlink()
    refuse(results, project, NotPromotableError, "is not sealed")


def test_a_changed_candidate_is_refused(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    frozen = results.root / "candidate" / CANONICAL
    frozen.chmod(0o600)
    frozen.write_text("other prose\n")
    refuse(results, project, IntegrityError, "candidate")


def test_a_sweep_without_a_candidate_has_nothing_to_apply(
    make_pairs: Callable[..., list[Row]], write_results: Callable[..., Results], project: Path
) -> None:
    results = write_results(make_pairs())
    refuse(results, project, UsageError, "had no candidate")
    assert conclude(results, now=utc_now(), status=RunStatus.COMPLETE) is None


def test_a_sweep_without_a_promotion_has_nothing_to_apply(
    make_pairs: Callable[..., list[Row]], write_results: Callable[..., Results], project: Path, candidate: Path
) -> None:
    results = write_results(make_pairs(), more={"promotion": bind(project, candidate).as_json()})
    refuse(results, project, UsageError, "holds no promotion.json")


def test_a_binding_that_cannot_be_read_is_refused(
    make_pairs: Callable[..., list[Row]], write_results: Callable[..., Results], project: Path
) -> None:
    results = write_results(make_pairs(), more={"promotion": {"layout": 1}})
    refuse(results, project, IntegrityError, "its candidate cannot be read")


def test_drift_of_one_mirror_leaves_both_untouched(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    (project / MIRROR).write_text("mine\n")
    with pytest.raises(UsageError, match=f"{MIRROR}: drifted"):
        apply(results, project)
    assert prose(project) == ["old prose\n", "mine\n"]


def spoil_mirror(project: Path) -> None:
    (project / MIRROR).unlink()
    git(project, "rm", "-q", "--cached", MIRROR)
    git(project, "commit", "-qm", "two")


def edit_canonical(project: Path) -> None:
    (project / CANONICAL).write_text("not committed\n")


def unequal_mirror(project: Path) -> None:
    (project / MIRROR).write_text("other\n")
    git(project, "commit", "-qam", "two")


def no_repository(project: Path) -> None:
    (project / ".git").rename(project.parent / "git")
    (project / ".git").write_text("gitdir: /nonexistent\n")  # this clone lies above it


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_mirror, f"{MIRROR}: not in the commit: an overlay changes files, it adds none"),
        (edit_canonical, f"{CANONICAL}: differs from what is committed"),
        (unequal_mirror, f"{MIRROR}: not equal to its canonical file"),
        (no_repository, "not a git repository with a commit"),
    ],
)
def test_a_project_that_is_not_as_committed_binds_nothing(
    spoil: Callable[[Path], None], words: str, project: Path, candidate: Path
) -> None:
    spoil(project)
    with pytest.raises(UsageError, match=words):
        bind(project, candidate)


def test_what_is_bound_is_the_commit_and_the_digest_of_every_place(project: Path, candidate: Path) -> None:
    binding = bind(project, candidate, policy=BoundPolicy(metric="num_turns"))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True)
    assert binding.base_commit == head.stdout.strip()
    assert set(binding.target_base_digests) == {CANONICAL, MIRROR}
    assert len(set(binding.target_base_digests.values())) == 1
    assert binding.policy.metric_warning is not None
    assert binding.candidate_origin == "manual-overlay"
    assert bind(project, candidate, proposer_model="m-9").candidate_origin == "model-proposer"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asked_arms": ("workflow",)}, "each incumbent and then its candidate"),
        ({"policy": BoundPolicy(min_runs=0)}, "--min-runs"),
        ({"policy": BoundPolicy(metric="speed")}, "unknown metric"),
    ],
)
def test_what_cannot_be_decided_is_not_bound(
    changes: dict[str, Any], words: str, project: Path, candidate: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        bind(project, candidate, **changes)


def test_a_project_that_is_not_there_binds_nothing(tmp_path: Path, candidate: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        bind(tmp_path / "none", candidate)


def test_apply_asks_for_a_directory_or_a_recovery(project: Path, capsys: Capture) -> None:
    assert run(["apply"]) == 2
    assert run(["apply", "x", "--recover"]) == 2
    assert run(["apply", "--recover", "--project", str(project)]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_kept_incumbent_has_exit_code_1(make_sealed: Callable[..., Results], project: Path, capsys: Capture) -> None:
    results = make_sealed(cost_usd=0.99)
    assert run(["apply", str(results.root), "--project", str(project), "--json"]) == 1
    assert "is not promotable" in json.loads(capsys.readouterr().out)["message"]
    assert run(["apply", str(results.root), "--check"]) == 1


def test_a_signal_puts_everything_back_and_says_so(
    make_sealed: Callable[..., Results], project: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    results = make_sealed()

    def stopped(*arguments: Any, **options: Any) -> tuple[str, ...]:  # noqa: ANN401 - passed on
        os.kill(os.getpid(), signal.SIGTERM)
        return apply_promotion(*arguments, **options)

    monkeypatch.setattr(cli_apply, "apply_promotion", stopped)
    assert run(["apply", str(results.root), "--project", str(project)]) == 128 + signal.SIGTERM
    assert capsys.readouterr().out == ""
    assert run(["apply", str(results.root), "--project", str(project), "--json"]) == 128 + signal.SIGTERM
    assert json.loads(capsys.readouterr().out) == {
        "schema": "error/1",
        "exit_code": 128 + signal.SIGTERM,
        "message": f"stopped by signal {int(signal.SIGTERM)}; everything is as it was: run it again",
    }
    assert prose(project) == ["old prose\n"] * 2
    assert [path.name for path in project.glob(".fairtrial-*")] == []


def test_checking_changes_nothing_and_needs_no_project(make_sealed: Callable[..., Results]) -> None:
    assert require_promotable(make_sealed(), now=datetime.now(UTC)).candidate_overlay == "candidate"


def evolve_apply(results: Results, project: Path, **recorded: str | None) -> StepOutcome | Ending:
    """The last step of an evolution in which the candidate of `results` was promoted, with what it recorded of that."""
    root = results.root.parent
    options = EvolveOptions(
        bench=BenchOptions(tasks="/t", arms=("workflow",), model="m-1", agent="bash-agent"),
        candidate=CandidateOptions(overlay="", layout=LAYOUT, project=str(project)),
        proposer_agent="bash-agent",
        proposer_model="m-1",
        apply=True,
    )
    work = Work(
        files=EvolutionFiles(root=root),
        evolution="e",
        bound=Bound(
            options=options,
            learning=(),
            holdout=(),
            held_out=(),
            inputs={},
            skills={},
            base_commit="",
            base_digests={},
        ),
        bounds=Bounds(generations=1, budget_usd=None, wall_time_s=None, has_holdout=False, apply=True),
        how=SweepOptions(
            out=None,
            scratch=None,
            keep_workspaces=False,
            lock_wait_s=0.0,
            report=lambda _results: None,
            say=lambda _line: None,
            watch=lambda _event: None,
        ),
        n_workers=1,
        started_s=0.0,
    )
    seal = read_seal(results)
    promoted = StepOutcome(
        schema=OUTCOME_SCHEMA,
        evolution="e",
        generation=0,
        step=StepKind.MEASURE,
        result=StepResult.PROMOTABLE,
        ended_utc="",
        results=results.root.name,
        candidate_overlay_digest=read_promotion(results).binding.candidate_overlay_digest,
        seal=seal.digest,
    )
    return work.run(Step(generation=0, kind=StepKind.APPLY), [replace(promoted, **recorded)])  # type: ignore[arg-type]


def test_an_evolution_applies_what_it_promoted_once(make_sealed: Callable[..., Results], project: Path) -> None:
    results = make_sealed()
    for _ in range(2):
        outcome = evolve_apply(results, project)
        assert isinstance(outcome, StepOutcome)
        assert outcome.result is StepResult.APPLIED
        assert prose(project) == ["new prose\n"] * 2


def test_an_evolution_does_not_call_applied_what_a_recovery_file_may_still_put_back(
    make_sealed: Callable[..., Results], project: Path
) -> None:
    results = make_sealed()
    apply(results, project)
    left = project / ".fairtrial-recovery-20261129T000000Z.json"
    left.write_text("{}")
    with pytest.raises(IntegrityError, match="run `fairtrial apply --recover` first"):
        evolve_apply(results, project)
    left.unlink()
    outcome = evolve_apply(results, project)
    assert isinstance(outcome, StepOutcome)
    assert outcome.result is StepResult.APPLIED


def test_an_evolution_applies_nothing_but_the_sealed_candidate_that_it_recorded(
    make_sealed: Callable[..., Results], project: Path
) -> None:
    results = make_sealed()
    for recorded, words in (
        ({"seal": "0" * 64}, f"{'0' * 64} is expected"),
        ({"seal": None}, "names no sealed results"),
        ({"candidate_overlay_digest": "0" * 64}, "holds another candidate than the one that was promoted"),
    ):
        with pytest.raises(IntegrityError, match=words):
            evolve_apply(results, project, **recorded)
    assert prose(project) == ["old prose\n"] * 2


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_a_project_that_drifted_is_refused_with_every_file(
    more: tuple[str, ...], make_sealed: Callable[..., Results], project: Path, capsys: Capture
) -> None:
    words = ["apply", str(make_sealed().root), "--project", str(project), *more]
    (project / MIRROR).write_text("mine\n")
    assert run(words) == 2
    said = capsys.readouterr()
    assert (f"{MIRROR}: drifted" in said.err, "may be applied" in said.out) == (True, False)
    assert prose(project) == ["old prose\n", "mine\n"]
    (project / MIRROR).write_text("old prose\n")
    (project / ".fairtrial-recovery-1.json").write_text("{}")
    assert run(words) == 4
    assert "apply --recover" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_another_seal_than_the_expected_one_is_refused(
    more: tuple[str, ...], make_sealed: Callable[..., Results], project: Path, capsys: Capture
) -> None:
    results = make_sealed()
    words = ["apply", str(results.root), "--project", str(project), *more]
    assert run([*words, "--expect", "0" * 64]) == 4
    assert f"{'0' * 64} is expected" in capsys.readouterr().err
    assert run([*words, "--expect", "0"]) == 2
    assert run(["apply", "--recover", "--expect", "0" * 64, "--project", str(project)]) == 2
    assert prose(project) == ["old prose\n"] * 2
    assert run([*words, "--expect", read_seal(results).digest.upper()]) == 0
    assert prose(project) == ["old prose\n" if more else "new prose\n"] * 2


@pytest.mark.parametrize("more", [(), ("--check",)])
def test_what_the_final_gate_is_to_decide_is_not_applied_before_it(
    more: tuple[str, ...], make_sealed: Callable[..., Results], project: Path, capsys: Capture
) -> None:
    results = make_sealed(policy=BoundPolicy(provisional=True))
    assert read_promotion(results).promotable
    assert run(["apply", str(results.root), "--project", str(project), *more]) == 1
    assert "asks for the final gate" in capsys.readouterr().err
    assert prose(project) == ["old prose\n"] * 2
    console = Console(file=StringIO(), width=200)
    print_promotion(read_promotion(results), console)
    assert "may not be applied" in console.file.getvalue()  # type: ignore[attr-defined] # the one made above
