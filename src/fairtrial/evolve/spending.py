"""What an evolution has spent so far: every attempt of every sweep, as its records on disk tell."""

from collections.abc import Callable, Iterator
from pathlib import Path

from fairtrial.errors import IntegrityError
from fairtrial.evidence.rows import measured
from fairtrial.evolve.record import EvolutionFiles
from fairtrial.gateway.ledger import WireRow, read_ledger
from fairtrial.gateway.totals import cost_at_least
from fairtrial.store.attempts import parse_outcome
from fairtrial.store.documents import read_bytes
from fairtrial.store.layout import OUTCOME, TRIALS

__all__ = ["spent_usd"]


def spent_usd(files: EvolutionFiles) -> float | None:
    """Sum what all attempts cost, in US dollars; None when some of it cannot be told.

    An attempt without a known cost is asked for its wire logs: without one it spoke to no model, which costs nothing.
    Of an attempt that still runs or was cut off they tell a lower bound: a request under way is not in it.

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
        return _wire_cost_of(attempt, cost_at_least)
    row = parse_outcome(attempt / OUTCOME, data).rows[-1]
    cost = measured(row.get("cost_usd"))
    return _wire_cost_of(attempt, _cost_of_all) if cost is None else cost


def _wire_cost_of(attempt: Path, add: Callable[[list[WireRow]], float | None]) -> float | None:
    total = 0.0
    for log in sorted(attempt.glob("wire-*.jsonl")):
        try:
            cost = add(list(read_ledger(log)))
        except IntegrityError:
            return None
        if cost is None:
            return None
        total += cost
    return total


def _cost_of_all(rows: list[WireRow]) -> float | None:
    costs = [call.cost_usd for call in rows if call.was_passed_on]
    return None if None in costs else sum(cost for cost in costs if cost is not None)
