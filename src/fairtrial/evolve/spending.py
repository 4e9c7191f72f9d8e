"""What an evolution has spent so far: every attempt of every sweep, as its records on disk tell."""

from collections.abc import Iterator
from pathlib import Path

from fairtrial.errors import IntegrityError
from fairtrial.evidence.rows import measured
from fairtrial.evolve.record import EvolutionFiles
from fairtrial.gateway.ledger import read_ledger
from fairtrial.store.attempts import parse_outcome
from fairtrial.store.documents import read_bytes
from fairtrial.store.layout import OUTCOME, TRIALS

__all__ = ["spent_usd"]


def spent_usd(files: EvolutionFiles) -> float | None:
    """Sum what all attempts cost, in US dollars; None when some of it cannot be told.

    An attempt without a known cost is asked for its wire logs: without one it spoke to no model, which costs nothing.
    Of an attempt that was cut off they tell a lower bound: a request that was under way then is not in them.

    Raises:
        IntegrityError: A record is damaged.
        HostError: One cannot be read.
    """
    total = 0.0
    for attempt in _attempts(files):
        cost = _cost_of(attempt)
        if cost is None:
            return None
        total += cost
    return total


def _attempts(files: EvolutionFiles) -> Iterator[Path]:
    for pattern in (f"*/proposal/results/{TRIALS}/*/*", f"*/*/{TRIALS}/*/*"):
        yield from sorted((files.root / "generations").glob(pattern))


def _cost_of(attempt: Path) -> float | None:
    try:
        data = read_bytes(attempt / OUTCOME)
    except FileNotFoundError:
        return _wire_cost_of(attempt)
    row = parse_outcome(attempt / OUTCOME, data).rows[-1]
    cost = measured(row.get("cost_usd"))
    return _wire_cost_of(attempt) if cost is None else cost


def _wire_cost_of(attempt: Path) -> float | None:
    total = 0.0
    for log in sorted(attempt.glob("wire-*.jsonl")):
        try:
            calls = [call for call in read_ledger(log) if call.was_passed_on]
        except IntegrityError:
            return None
        if any(call.cost_usd is None for call in calls):
            return None
        total += sum(call.cost_usd or 0.0 for call in calls)
    return total
