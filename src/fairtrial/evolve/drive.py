"""The loop: what is next, its intent, the step, its outcome; and again."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from fairtrial.evolve.next_step import Bounds, Used, next_step
from fairtrial.evolve.record import EvolutionFiles, read_outcomes, write_intent, write_outcome
from fairtrial.evolve.values import Ending, Step, StepOutcome

__all__ = ["Clock", "Steps", "drive"]


class Clock(Protocol):
    """Tells the time."""

    def __call__(self) -> datetime:
        """The moment, in UTC."""
        ...


class Steps(Protocol):
    """How the steps of an evolution are done."""

    def used(self) -> Used:
        """What has been used up by now."""
        ...

    def run(self, step: Step, before: Sequence[StepOutcome]) -> StepOutcome | Ending:
        """Do one step, or take it up where a killed pass left it.

        Args:
            step: The step.
            before: What the steps before it came to.

        Returns:
            What it came to; or why it did not come to its end, when a later pass is to go on with it.
        """
        ...


def drive(files: EvolutionFiles, steps: Steps, bounds: Bounds, *, evolution: str, now: Clock) -> Ending:
    """Go on with an evolution until it ends or cannot go on in this pass.

    Every decision is made from what is on disk, so that a pass which was killed at any moment is taken up there.

    Raises:
        IntegrityError: A record cannot be believed.
        HostError: The file system refuses, or the host failed.
        UsageError: An input has changed.
    """
    while True:
        outcomes = read_outcomes(files, evolution=evolution)
        step = next_step(outcomes, bounds, steps.used())
        if isinstance(step, Ending):
            return step
        write_intent(files, step, evolution=evolution, now=now())
        came_to = steps.run(step, outcomes)
        if isinstance(came_to, Ending):
            return came_to
        write_outcome(files, came_to)
