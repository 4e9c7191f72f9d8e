"""Put a promoted candidate into the project's work tree, all or nothing."""

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from pathlib import Path

from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.endings import VOID_MEMBERS, is_void
from fairtrial.promote.binding import Binding
from fairtrial.promote.promotion import problems_of, read_binding, read_promotion
from fairtrial.promote.target import Change
from fairtrial.promote.transaction import Step, examine, publish
from fairtrial.store.audit import audit
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.workspace.overlay import read_overlay

__all__ = ["NotPromotableError", "Use", "apply_promotion", "changes_of", "check_promotion", "require_promotable"]


class NotPromotableError(UsageError):
    """The answer is no: the evidence does not allow this candidate to be applied."""

    exit_code = 1


class Use(Enum):
    """What a promotion is applied for."""

    REAL = "real"
    REHEARSAL = "rehearsal"
    """To try the machinery out: a script may have played the model."""


def apply_promotion(
    results: Results,
    project: Path,
    *,
    now: datetime,
    watch: Callable[[Step, str], None],
    use: Use = Use.REAL,
    expect: str | None = None,
) -> tuple[str, ...]:
    """Check everything again, then replace the project's files; only its work tree is touched.

    Args:
        results: The sweep's directory.
        project: Top of the project's work tree.
        now: The moment.
        watch: Told each step of the transaction; what it raises undoes everything.
        use: What for; a rehearsal's promotion is applied for nothing else.
        expect: The digest of `seal.json` that was kept elsewhere, in hex.

    Returns:
        The paths that were replaced.

    Raises:
        NotPromotableError: The promotion may not be applied; the message says why.
        IntegrityError: The evidence is not what was written, or the tree was changed meanwhile.
        UsageError: There is no promotion, or the project is not what the candidate was measured against.
        HostError: A file system refuses.
    """
    binding = require_promotable(results, now=now, use=use, expect=expect)
    return publish(project, changes_of(results, binding), now=now, watch=watch)


def check_promotion(
    results: Results, project: Path, *, now: datetime, use: Use = Use.REAL, expect: str | None = None
) -> tuple[str, ...]:
    """Check everything that `apply_promotion` checks before it writes, the project's files too; change nothing.

    Args:
        results: The sweep's directory.
        project: Top of the project's work tree.
        now: The moment.
        use: What for.
        expect: The digest of `seal.json` that was kept elsewhere, in hex.

    Returns:
        The paths that would be replaced.

    Raises:
        NotPromotableError: The promotion may not be applied; the message says why.
        IntegrityError: The evidence is not what was written, or the project holds what a broken-off attempt left.
        UsageError: There is no promotion, or the project is not what the candidate was measured against.
        HostError: A file system refuses, or another one is being applied.
    """
    return examine(project, changes_of(results, require_promotable(results, now=now, use=use, expect=expect)))


def require_promotable(results: Results, *, now: datetime, use: Use = Use.REAL, expect: str | None = None) -> Binding:
    """Audit a sweep and compute its promotion again.

    Args:
        results: The sweep's directory.
        now: The moment.
        use: What for; a rehearsal's promotion is applied for nothing else.
        expect: The digest of `seal.json` that was kept elsewhere, in hex.

    Raises:
        NotPromotableError: It may not be applied.
        IntegrityError: The evidence is not what was written.
        UsageError: There is no promotion.
    """
    found = audit(results, expect=expect, is_void=is_void, final_members=VOID_MEMBERS)
    if not found.is_intact:
        raise IntegrityError(f"{results.root}: {found.problems[0].as_line()}; see `fairtrial audit {results.root}`")
    if not found.sealed:
        raise NotPromotableError(f"{results.root}: is not sealed; finish it with `fairtrial resume`")
    sweep = read_sweep(results)
    binding = read_binding(sweep)
    if binding is None:
        raise UsageError(f"{results.root}: its sweep had no candidate; run one with --candidate-overlay")
    if binding.policy.provisional:
        raise NotPromotableError(
            f"{results.root}: not applied: its evolution asks for the final gate; apply what `confirm` promotes"
        )
    try:
        promotion = read_promotion(results)
    except FileNotFoundError:
        raise UsageError(f"{results.root}: holds no promotion.json; finish the sweep with `fairtrial resume`") from None
    problems = problems_of(
        promotion,
        sweep,
        binding,
        lambda: read_rows(results.results_jsonl, sweep_id=sweep.sweep),
        now=now,
        n_uncounted=(found.n_planned or 0) - (found.n_counting or 0),
    )
    if problems:
        raise NotPromotableError(f"{results.promotion_json}: not applied: {'; '.join(problems)}")
    if promotion.rehearsal and use is not Use.REHEARSAL:
        raise NotPromotableError(
            f"{results.promotion_json}: not applied: it is a rehearsal, in which a script may have played the model;"
            " to try `apply` out on a project that you can lose, use --rehearsal"
        )
    return binding


def changes_of(results: Results, binding: Binding) -> tuple[Change, ...]:
    """What is to be replaced: each file of the frozen candidate, in its canonical place and in every mirror.

    Raises:
        IntegrityError: The frozen candidate is not the bound one, or its targets are not those that were bound.
    """
    directory = results.root / binding.candidate_overlay
    try:
        overlay = read_overlay(directory.resolve(), binding.layout)
    except UsageError as problem:
        raise IntegrityError(f"{directory}: is not what was frozen ({problem})") from problem
    if overlay.digest != binding.candidate_overlay_digest:
        raise IntegrityError(f"{directory}: is not the candidate that was measured")
    targets = {target: file for file in overlay.files for target in binding.layout.targets(file.path)}
    bound = binding.target_base_digests
    if targets.keys() != bound.keys():
        strangers = sorted(targets.keys() ^ bound.keys())
        raise IntegrityError(f"{directory}: its targets are not those that were bound: {', '.join(strangers)}")
    return tuple(
        Change(path=target, old_sha256=bound[target], content=file.content) for target, file in targets.items()
    )
