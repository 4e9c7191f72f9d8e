"""The report of a tool sweep as one JSON object."""

from typing import Final

from fairtrial.evidence.loop_compare import ControlSpread, Difference
from fairtrial.evidence.loop_report import LoopSummary, Section, SubjectSummary
from fairtrial.evidence.loop_runs import LoopRun, Setting
from fairtrial.report.loop_words import WEIGHTED, truth_word, warm_delta_of
from fairtrial.report.publication import matrix_json

__all__ = ["loop_report_json"]

SCHEMA: Final = "loop-report/1"


def loop_report_json(summary: LoopSummary, *, sealed: bool) -> dict[str, object]:
    """Give the report as one JSON object of schema `loop-report/1`.

    Args:
        summary: What the rows show.
        sealed: The rows come from a directory whose seal names its last row.
    """
    return {
        "schema": SCHEMA,
        "sealed": sealed,
        "audited": False,
        "rows": summary.n_rows,
        "planned": summary.n_planned,
        "uncounted": summary.n_uncounted,
        "token_rules": list(summary.token_rules),
        "sections": [_section_json(section) for section in summary.sections],
        "runs": [_run_json(run) for run in summary.runs],
        "skipped": [
            _place_json(note.setting, note.subject)
            | {"operation": note.operation, "reason": note.reason, "runs": note.n_runs}
            for note in summary.skips
        ],
        "void": [
            _place_json(note.setting, note.subject)
            | {"run": note.run, "error_kind": note.error_kind, "detail": note.detail}
            for note in summary.voids
        ],
        "failed": [
            _place_json(note.setting, note.subject) | {"run": note.run, "detail": note.detail}
            for note in summary.failures
        ],
    }


def _place_json(setting: Setting, subject: str) -> dict[str, object]:
    return {
        "scenario": setting.scenario,
        "remote_transport": setting.remote_transport or None,
        "host": setting.host or None,
        "subject": subject,
    }


def _section_json(section: Section) -> dict[str, object]:
    place = _place_json(section.setting, "")
    del place["subject"]
    return {
        **place,
        "reference": section.reference,
        "subjects": [_subject_json(subject) for subject in section.subjects],
        "control": [
            {"field": spread.field, "subject": spread.control or None, "null_subject": spread.null or None}
            | _spread_json(spread)
            for spread in section.control
        ],
        "differences": [_difference_json(difference) for difference in section.differences],
        "publications": matrix_json(section),
    }


def _subject_json(subject: SubjectSummary) -> dict[str, object]:
    return {
        "subject": subject.subject,
        "null_control": subject.null_control,
        "runs": subject.n_runs,
        "passed": subject.n_passed,
        "as_failures": {"passed": subject.n_passed, "runs": subject.runs_as_failures},
        "skipped": subject.n_skipped,
        "void": subject.n_void,
        "planned": subject.n_planned,
        "not_begun": subject.n_not_begun,
        "voided_attempts": subject.voided_attempts,
        "medians": dict(subject.medians),
        "peak_memory_bytes": subject.peak_memory_bytes,
        "peak_memory_below_bytes": subject.peak_memory_below_bytes,
        "network_bytes_reason": subject.network_bytes_reason or None,
        "truth_check": subject.truth,
        "coverage": subject.coverage,
    }


def _difference_json(difference: Difference) -> dict[str, object]:
    return {
        "subject": difference.subject,
        "reference": difference.reference,
        "field": difference.field,
        "blocks": difference.n_blocks,
        "median_difference": difference.median_difference,
        "control": _spread_json(difference.control),
        "timing_claim": difference.claim or None,
    }


def _spread_json(control: ControlSpread) -> dict[str, object]:
    return {
        "blocks": control.n_blocks,
        "largest": control.largest,
        "median": control.median,
        "reason": control.reason or None,
    }


def _run_json(run: LoopRun) -> dict[str, object]:
    return _place_json(run.setting, run.subject) | {
        "run": run.run,
        "block": run.block,
        "attempt": run.attempt,
        "passed": run.passed,
        "elapsed_ms": run.number("elapsed_ms"),
        "tool_call_count": run.number("tool_call_count"),
        WEIGHTED: run.number(WEIGHTED),
        "warm_acquire_delta_ms": warm_delta_of(run),
        "truth_check": truth_word(run),
        "coverage_complete": run.coverage_complete,
    }
