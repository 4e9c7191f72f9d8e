"""Whether a candidate lost its measurement by nothing but stops of the harness in its trials.

Such a void counts as a failed run, because whoever watches a sweep can stop it when it goes badly. That is right about
the measurement, and wrong about the candidate: so it is measured once more, and must win both times; see decision 0015.
"""

from collections.abc import Mapping

from fairtrial.evidence.endings import EndingKind, is_void, kind_of
from fairtrial.evidence.gate import Outcome
from fairtrial.promote.promotion import Promotion, RunStatus
from fairtrial.store.layout import Results
from fairtrial.store.rows import read_rows
from fairtrial.store.sweep_file import read_sweep
from fairtrial.sweep.loop_sweep import SWEEP_KILLED

__all__ = ["is_lost_by_stops"]


def is_lost_by_stops(promotion: Promotion, results: Results) -> bool:
    """Tell whether every arm wins with voids as they are, and only stops keep one of them from it.

    A void of another kind (an outage, a fault of ours, a worker that died while its sweep lived) may have to do with
    the arm: then the answer is no.

    Args:
        promotion: What the measurement came to.
        results: Its directory.

    Raises:
        IntegrityError: A row cannot be believed.
    """
    wins = all(each.decision["decision"] == Outcome.PROMOTE and not each.inadmissible for each in promotion.decisions)
    if promotion.promotable or promotion.run_status is not RunStatus.COMPLETE or not wins:
        return False
    sweep = read_sweep(results)
    rows = read_rows(results.results_jsonl, sweep_id=sweep.sweep)
    return all(_is_stop(row) for row in rows if is_void(row))


def _is_stop(void: Mapping[str, object]) -> bool:
    """The whole sweep was killed or stopped, whatever this trial did."""
    kind = kind_of(void)
    return kind == EndingKind.CANCELLED or (kind == EndingKind.INTERRUPTED and void.get("error_detail") == SWEEP_KILLED)
