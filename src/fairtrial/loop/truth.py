"""Does the remote hold what was published? Exact bytes and exact head, by every way of looking, and a sound store."""

from dataclasses import dataclass

from fairtrial.model.loop import Truth

__all__ = ["Expectation", "TruthCheck", "judge_joined", "judge_truth", "unread_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What one phase must have left on the remote.

    Attributes:
        branch: The branch it published.
        head: The client's head, recorded before it published; None when it could not be read.
        content: The exact bytes of the notes file.
    """

    branch: str
    head: str | None
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthCheck:
    """The verdict on one branch.

    Attributes:
        holds: True, False, or None when there was nothing to compare, or all that is wrong is that nobody could look.
        failures: Every way in which it does not hold, one sentence each.
    """

    holds: bool | None
    failures: tuple[str, ...]


def unread_of(truth: Truth) -> tuple[str, ...]:
    """Every source that nobody could look at, and why."""
    return tuple(f"{each.source}: could not be read ({each.detail})" for each in truth.readings if each.failed)


def judge_truth(expected: Expectation, truth: Truth) -> TruthCheck:
    """Compare what was read back with what must be there; pure.

    Without a head recorded before publication nothing can be proven either way: `holds` is None. So it is where a
    reading failed and nothing else speaks against the branch.
    """
    if expected.head is None:
        return TruthCheck(holds=None, failures=("no head was recorded before publication",))
    failures = [] if truth.readings else ["nothing was read back"]
    unread = unread_of(truth)
    for reading in (each for each in truth.readings if not each.failed):
        if reading.head is None:
            failures.append(f"{reading.source}: no branch {expected.branch} ({reading.detail or 'absent'})")
        elif reading.head != expected.head:
            failures.append(f"{reading.source}: {expected.branch} is at {reading.head}, not at {expected.head}")
        if reading.head is not None and reading.content is None:
            failures.append(f"{reading.source}: the notes could not be read ({reading.detail})")
        elif reading.content is not None and reading.content != expected.content:
            failures.append(f"{reading.source}: the notes differ from what was written")
    if truth.integrity is False:
        failures.append(f"the store failed its integrity check: {truth.integrity_detail}")
    holds = None if unread and not failures else not failures
    return TruthCheck(holds=holds, failures=(*unread, *failures))


def judge_joined(expected: Expectation, truth: Truth) -> tuple[str, ...]:
    """Every way in which the branch does not hold what was joined on one head alone; pure."""
    forks = (
        f"{reading.source}: {expected.branch} still forks to {', '.join(reading.beside)}"
        for reading in truth.readings
        if reading.beside
    )
    return (*judge_truth(expected, truth).failures, *forks)
