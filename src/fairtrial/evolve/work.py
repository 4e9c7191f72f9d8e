"""The steps of an evolution as they are really done."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from fairtrial.bench.blobs import read_stable
from fairtrial.errors import IntegrityError, UsageError
from fairtrial.evidence.bench import broken_incumbents
from fairtrial.evidence.endings import EndingKind, is_void
from fairtrial.evidence.gate import Outcome
from fairtrial.evolve.bound import Bound, require_unchanged
from fairtrial.evolve.evidence import evidence_document, gate_lines
from fairtrial.evolve.holdout import USE_SCHEMA, HoldoutUse, note_use
from fairtrial.evolve.learnings import read_learnings
from fairtrial.evolve.material import SkillBase, read_evidence_rows, read_transcripts
from fairtrial.evolve.next_step import Bounds, Used, over_bounds
from fairtrial.evolve.proposal import (
    Aim,
    Given,
    InvalidProposalError,
    keep_candidate,
    prepare_proposal,
    proposer_options,
    take_candidate,
)
from fairtrial.evolve.record import EvolutionFiles, GenerationFiles
from fairtrial.evolve.spending import spent_usd
from fairtrial.evolve.stops import is_lost_by_stops
from fairtrial.evolve.sweeps import Finished, for_pairs, run_sweep
from fairtrial.evolve.values import OUTCOME_SCHEMA, Ending, EndKind, Step, StepKind, StepOutcome, StepResult
from fairtrial.host.clock import monotonic_s, rfc3339, utc_now
from fairtrial.host.signals import stop_requests
from fairtrial.promote.apply import Use, apply_promotion, changes_of, require_promotable
from fairtrial.promote.promotion import BoundDecision, Promotion, read_promotion
from fairtrial.promote.recovery import find_recoveries
from fairtrial.promote.target import sha256_of
from fairtrial.promote.transaction import Step as ApplyStep
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.bench_plan import BenchOptions
from fairtrial.sweep.loop_sweep import SweepOptions
from fairtrial.sweep.scratch import scratch_base
from fairtrial.workspace.overlay import Overlay, read_overlay, required_candidate_arms

__all__ = ["Work"]


class _StopError(BaseException):
    """A signal asked us to stop: everything is put back."""


@dataclass(slots=True, kw_only=True)
class Work:
    """One pass over an evolution: its steps, see `fairtrial.evolve.drive.Steps`.

    Attributes:
        files: Where it lies.
        evolution: Its id.
        bound: What it fixed.
        bounds: What it may do.
        how: How its sweeps are run.
        n_workers: Trials at the same time.
        started_s: When the pass began, on the monotonic clock.
        spent_usd: US dollars spent by now, over all passes; None when there is no budget, or it cannot be told.
    """

    files: EvolutionFiles
    evolution: str
    bound: Bound
    bounds: Bounds
    how: SweepOptions
    n_workers: int
    started_s: float
    spent_usd: float | None = None

    def used(self) -> Used:
        """See `Steps.used`."""
        self.spent_usd = None if self.bounds.budget_usd is None else spent_usd(self.files)
        return Used(spent_usd=self.spent_usd, elapsed_s=monotonic_s() - self.started_s)

    def run(self, step: Step, before: Sequence[StepOutcome]) -> StepOutcome | Ending:
        """See `Steps.run`."""
        here = self.files.generation(step.generation)
        base = (
            require_unchanged(self.bound, scratch_base(self.how.scratch)) if step.kind is not StepKind.APPLY else None
        )
        self.how.say(f"generation {step.generation}: {step.kind}")
        if step.kind in {StepKind.MEASURE, StepKind.CONFIRM}:
            self._require_same_candidate(here, before[-1])
        match step.kind, base:
            case StepKind.PROPOSE, SkillBase():
                return self._propose(here, step, before, base)
            case StepKind.MEASURE, _:
                return self._measure(here, step, self.bound.learning, lambda _repeat: {})
            case StepKind.CONFIRM, _:
                return self._confirm(here, step)
            case StepKind.APPLY, _:
                return self._apply(step, before[-1])
            case _:
                raise AssertionError("a step other than apply has a base")

    def _require_same_candidate(self, here: GenerationFiles, before: StepOutcome) -> None:
        """What lies there is what the step before proposed or measured: between two passes anybody can write to it."""
        if read_overlay(here.candidate.resolve(), self.bound.layout).digest != before.candidate_overlay_digest:
            raise IntegrityError(
                f"{here.candidate}: is another candidate than the one that was {before.step}d; believe nothing derived"
                " from it"
            )

    def _outcome(self, step: Step, result: StepResult, *reasons: str) -> StepOutcome:
        return StepOutcome(
            schema=OUTCOME_SCHEMA,
            evolution=self.evolution,
            generation=step.generation,
            step=step.kind,
            result=result,
            ended_utc=rfc3339(utc_now()),
            reasons=reasons,
        )

    def _propose(
        self, here: GenerationFiles, step: Step, before: Sequence[StepOutcome], base: SkillBase
    ) -> StepOutcome | Ending:
        initial = self.bound.options.initial_overlay if step.generation == 0 else None
        if initial is not None:
            overlay = keep_candidate(here, read_overlay(Path(initial), self.bound.layout), self.bound.layout)
            return self._proposed(step, before, base, overlay)
        if not here.results(StepKind.PROPOSE).exists():
            given = self._given(step.generation, before, base)
            prepare_proposal(
                here,
                given,
                self.bound.layout,
                agent=self.bound.options.proposer_agent,
                budget_usd=self._proposer_budget_usd(),
            )
        finished = self._sweep(here.results(StepKind.PROPOSE), proposer_options(here, self.bound.options), (), 1)
        if isinstance(finished, Ending):
            return finished
        (row,) = _counting_rows(finished.results)
        if row.get("error_kind") == EndingKind.BUDGET_EXHAUSTED:
            ending = over_bounds(self.bounds, self.used())
            if ending is not None:
                return ending  # it was the evolution's budget, and not the proposal's own
        outcome = self._judge_proposal(here, step, before, base, finished.results, row)
        return replace(outcome, results=self._below(finished.results), seal=finished.seal)

    def _proposer_budget_usd(self) -> float | None:
        """What one proposal may cost: what is asked, and no more than what is left of the whole budget."""
        own, whole = self.bound.options.proposer_budget_usd, self.bounds.budget_usd
        if whole is None:
            return own
        left = whole - (self.spent_usd or 0.0)
        return left if own is None else min(own, left)

    def _judge_proposal(
        self,
        here: GenerationFiles,
        step: Step,
        before: Sequence[StepOutcome],
        base: SkillBase,
        results: Results,
        row: Mapping[str, object],
    ) -> StepOutcome:
        if row.get("resolved") is not True:
            reason = f"the proposer failed: {row.get('error_kind')}: {row.get('error_detail')}"
            return self._outcome(step, StepResult.REFUSED, reason)
        try:
            overlay = take_candidate(here, results, row, self.bound.layout)
        except InvalidProposalError as problem:
            return self._outcome(step, StepResult.REFUSED, f"the proposal is no candidate: {problem}")
        return self._proposed(step, before, base, overlay)

    def _proposed(self, step: Step, before: Sequence[StepOutcome], base: SkillBase, overlay: Overlay) -> StepOutcome:
        known = {outcome.candidate_overlay_digest: outcome.generation for outcome in before}
        if added := [file.path for file in overlay.files if file.path not in base.files]:
            outcome = self._outcome(step, StepResult.REFUSED, f"{added[0]}: a candidate changes files, it adds none")
        elif all(base.files[file.path] == file.content for file in overlay.files):
            outcome = self._outcome(step, StepResult.REFUSED, "the proposal changes nothing")
        elif overlay.digest in known:
            reason = f"the candidate is that of generation {known[overlay.digest]}, which was measured"
            outcome = self._outcome(step, StepResult.REFUSED, reason)
        else:
            outcome = self._outcome(step, StepResult.PROPOSED)
        return replace(outcome, candidate_overlay_digest=overlay.digest)

    def _given(self, generation: int, before: Sequence[StepOutcome], base: SkillBase) -> Given:
        options, skills = self.bound.options, self.bound.layout.skills or ()
        queue = read_learnings(
            None if options.learnings is None else Path(options.learnings),
            skills=skills,
            hidden_tasks=self.bound.held_out,
        )
        source = None if options.seed_results is None else Path(options.seed_results)
        if generation > 0:
            last = self.files.generation(generation - 1)
            source = last.results(StepKind.MEASURE, last.last_repeat(StepKind.MEASURE))
        paths: dict[str, list[str]] = {}
        transcripts: dict[str, bytes] = {}
        results, chosen = (None, ()) if source is None else read_evidence_rows(source, self.bound.learning_ids)
        if results is not None:
            for key, contents in read_transcripts(results, chosen).items():
                for content in contents:
                    name = f"{len(transcripts):02d}.jsonl"
                    transcripts[name] = content
                    paths.setdefault(key, []).append(f"evidence/transcripts/{name}")
        document = evidence_document(
            chosen,
            generation=generation,
            gate=gate_lines(before),
            learnings=queue.learnings,
            n_malformed_learnings=queue.n_malformed,
            transcripts=paths,
        )
        return Given(
            generation=generation,
            skills=base.files,
            evidence=document,
            transcripts=transcripts,
            earlier=self._earlier(before),
            aim=Aim.REVIEW if self.bound.reviews else Aim.WORK,
        )

    def _earlier(self, before: Sequence[StepOutcome]) -> dict[str, bytes]:
        """Files of the candidates that were measured and not promoted."""
        found: dict[str, bytes] = {}
        for outcome in before:
            if outcome.result is StepResult.KEPT and outcome.step is StepKind.MEASURE:
                here = self.files.generation(outcome.generation)
                for file in read_overlay(here.candidate.resolve(), self.bound.layout).files:
                    found[f"{outcome.generation}/{file.path}"] = file.content
        return found

    def _measure(
        self,
        here: GenerationFiles,
        step: Step,
        tasks: Sequence[Mapping[str, object]],
        note: Callable[[int], Mapping[str, int]],
    ) -> StepOutcome | Ending:
        """Measure a candidate; once more when nothing but stops of ours, in its trials, speaks against it.

        Args:
            here: The generation.
            step: Measure or confirm.
            tasks: Bindings of the tasks.
            note: Called before each time, with how often it was measured before; gives the uses of holdout tasks.
        """
        overlay = read_overlay(here.candidate.resolve(), self.bound.layout)
        options = self._candidate_options(here, overlay, step, tuple(str(task["id"]) for task in tasks))
        repeat = here.last_repeat(step.kind)
        while True:
            uses = note(repeat)
            finished = self._sweep(here.results(step.kind, repeat), options, tasks, self.n_workers)
            if isinstance(finished, Ending):
                return finished
            promotion = read_promotion(finished.results)
            if promotion.binding.candidate_overlay_digest != overlay.digest:
                raise IntegrityError(
                    f"{finished.results.root}: measured another candidate; believe nothing derived from it"
                )
            if not is_lost_by_stops(promotion, finished.results):
                return self._measured(step, promotion, finished, uses)
            repeat += 1
            self.how.say(f"generation {step.generation}: {step.kind} again: the candidate won, but for trials cut off")

    def _measured(self, step: Step, promotion: Promotion, finished: Finished, uses: Mapping[str, int]) -> StepOutcome:
        broken = broken_incumbents(finished.summary.aggregates, incumbents=self.bound.options.bench.arms)
        result = StepResult.PROMOTABLE if promotion.promotable else StepResult.KEPT
        reasons = tuple(reason for decision in promotion.decisions for reason in _reasons(decision))
        if broken:
            result, reasons = StepResult.REFUSED, (f"the incumbent resolves nothing: {', '.join(broken)}",)
        rates = [decision.false_promotion.p_promoted for decision in promotion.decisions]
        known = [rate for rate in rates if rate is not None]
        return replace(
            self._outcome(step, result, *reasons),
            candidate_overlay_digest=promotion.binding.candidate_overlay_digest,
            results=self._below(finished.results),
            seal=finished.seal,
            p_false_promotion=max(known) if known and len(known) == len(rates) else None,
            holdout_uses=dict(uses),
        )

    def _candidate_options(
        self, here: GenerationFiles, overlay: Overlay, step: Step, tasks: tuple[str, ...]
    ) -> BenchOptions:
        """The sweep of a candidate: a pair of arms for each incumbent that loads what it changes."""
        options = self.bound.options
        required = required_candidate_arms(overlay.skills, self.bound.skills)
        is_manual = options.initial_overlay is not None and here == self.files.generation(0)
        return replace(
            for_pairs(options.bench, required),
            only=tasks,
            candidate=replace(
                options.candidate,
                overlay=str(here.candidate.resolve()),
                proposer_model=None if is_manual else options.proposer_model,
                provisional=step.kind is StepKind.MEASURE and bool(self.bound.holdout),
            ),
        )

    def _confirm(self, here: GenerationFiles, step: Step) -> StepOutcome | Ending:
        """Note the use of the holdout tasks, then ask them: in this order, so that none is forgotten."""
        digest = read_overlay(here.candidate.resolve(), self.bound.layout).digest

        def note(repeat: int) -> Mapping[str, int]:
            use = HoldoutUse(
                schema=USE_SCHEMA,
                used_utc=rfc3339(utc_now()),
                evolution=self.evolution,
                generation=step.generation,
                candidate_overlay_digest=digest,
                tasks={str(task["id"]): str(task["oracle_digest"]) for task in self.bound.holdout},
                repeat=repeat,
            )
            uses = note_use(Path(self.bound.options.bench.tasks), use)
            self.how.say("uses of holdout tasks, this one included: " + ", ".join(f"{t} {n}" for t, n in uses.items()))
            return uses

        return self._measure(here, step, self.bound.holdout, note)

    def _apply(self, step: Step, promoted: StepOutcome) -> StepOutcome | Ending:
        if promoted.results is None or promoted.seal is None:
            raise IntegrityError(f"{self.files.root}: the record of what is promoted names no sealed results")
        results, project = Results(root=self.files.root / promoted.results), Path(self.bound.options.candidate.project)
        use = Use.REHEARSAL if self.bound.options.candidate.rehearsal else Use.REAL
        binding = require_promotable(results, now=utc_now(), use=use, expect=promoted.seal)
        if binding.candidate_overlay_digest != promoted.candidate_overlay_digest:
            raise IntegrityError(f"{results.root}: holds another candidate than the one that was promoted")
        changes = changes_of(results, binding)
        # With a recovery file the files may yet be put back, whatever they hold now: `apply_promotion` says so.
        is_settled = not find_recoveries(project)
        if not is_settled or not all(_holds(project, each.path, sha256_of(each.content)) for each in changes):
            with stop_requests() as stop:

                def watch(_step: ApplyStep, _path: str) -> None:
                    if stop.signal_number is not None:
                        raise _StopError

                try:
                    apply_promotion(results, project, now=utc_now(), watch=watch, use=use, expect=promoted.seal)
                except _StopError:
                    code = 128 + (stop.signal_number or 0)
                    return Ending(kind=EndKind.STOPPED, detail="stopped; the project is as it was", exit_code=code)
        applied = tuple(f"{change.path} is replaced" for change in changes)
        return replace(
            self._outcome(step, StepResult.APPLIED, *applied),
            candidate_overlay_digest=promoted.candidate_overlay_digest,
            results=promoted.results,
            seal=promoted.seal,
        )

    def _sweep(
        self, out: Path, options: BenchOptions, tasks: Sequence[Mapping[str, object]], n_workers: int
    ) -> Finished | Ending:
        return run_sweep(
            out,
            options,
            self.how,
            n_workers=n_workers,
            bound_tasks=tasks,
            bound_inputs=self.bound.inputs if tasks else {},
            bounds=self.bounds,
            used=self.used,
        )

    def _below(self, results: Results) -> str:
        return os.path.relpath(results.root, self.files.root)


def _counting_rows(results: Results) -> list[Mapping[str, object]]:
    sweep = read_sweep(results)
    return [row for row in read_rows(results.results_jsonl, sweep_id=sweep.sweep) if not is_void(row)]


def _reasons(decision: BoundDecision) -> list[str]:
    """Why a candidate arm is promoted or not, as sentences."""
    first = decision.decision if decision.decision["decision"] != Outcome.PROMOTE else decision.as_failures
    texts = first.get("reasons")
    said = [str(text) for text in cast("list[object]", texts)] if isinstance(texts, list) else []
    said += [f"not usable: {reason['detail']}" for reason in decision.inadmissible]
    return [f"{decision.candidate_arm}: {text}" for text in said]


def _holds(project: Path, path: str, sha256: str) -> bool:
    """The project holds those bytes there."""
    try:
        return sha256_of(read_stable(project, path, max_bytes=8 << 20)) == sha256
    except UsageError:
        return False
