"""Joining another writer's work that is on the branch already, as an agent would: bring it in, resolve, publish.

Both writers have added a line at the same place of the same file, so that no tool can settle it alone: the agent reads
what the tool has left there and writes both lines. Whether that is a recovery is told by nothing that the client says:
the branch's one head must be the client's, and its notes the lines of both, in the store and over the transport.
"""

from dataclasses import dataclass, replace
from typing import Final

from fairtrial.loop.recovery import Recovery, free_row, spent
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.seed import NOTES
from fairtrial.loop.stage import Stage
from fairtrial.loop.truth import Expectation, judge_joined, unread_of
from fairtrial.loop.work import traffic
from fairtrial.model.loop import Manner, Motion, Place, Step
from fairtrial.model.process import ProcessResult

__all__ = ["RIVAL_LINE", "Joined", "join_rival"]

RIVAL_LINE: Final = "- another writer was here first"
NO_JOIN: Final = "this subject has no commands that bring in another writer's work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What became of a join.

    Attributes:
        recovery: What it took, and whether the branch holds the work of both.
        head: The head that holds it; None when the branch does not.
        unread: Why nobody could read whether it does; "" when it could be read.
    """

    recovery: Recovery
    head: str | None
    unread: str = ""


def join_rival(stage: Stage, builder: RowBuilder, rows: list[Row], case: str, joint: bytes) -> Joined:
    """Bring the other writer's work in, keep both lines, publish, and look at the server.

    Args:
        stage: Where.
        builder: Makes the rows.
        rows: Takes a row for each of the agent's commands.
        case: The place, and the first part of the rows' names.
        joint: The exact bytes of the notes with the lines of both.
    """
    before, own = traffic(stage), list[Row]()
    place, operation = stage.places[case], f"{case}.recover.join"

    def done(steps: tuple[Step, ...]) -> list[ProcessResult]:
        results = [stage.run_step(step) for step in steps]
        own.extend(free_row(stage, builder, operation, *pair) for pair in zip(steps, results, strict=True))
        return results

    reason, n_publishes, head, unread = NO_JOIN, 0, None, ""
    brought = done(stage.subject.steps(Motion.JOIN, Manner.PLAIN, place))
    if brought:
        (looked,) = done((_look_step(place),))
        reason = _not_brought(looked, brought[-1])
    if not reason:
        done((_resolve_step(place, joint), *stage.subject.steps(Motion.SNAPSHOT, Manner.MERGED, place)))
        publish = stage.subject.steps(Motion.PUBLISH, Manner.PLAIN, place)
        done(tuple(replace(step, name=f".publish{step.name}") for step in publish))
        n_publishes = 1
        head, reason, unread = _joined_head(stage, case, joint)
    recovery = spent(stage, own, before, recovered=not reason, reason=reason, n_publishes=n_publishes)
    rows.extend(own)
    return Joined(recovery=recovery, head=head, unread=unread)


def _look_step(place: Place) -> Step:
    """Read the notes as the join has left them."""
    return Step(argv=("/bin/cat", NOTES), cwd=place.workspace, name=".look")


def _resolve_step(place: Place, joint: bytes) -> Step:
    """Write the notes with both lines, the same for every subject."""
    script = 'printf "%s" "$1" > "$2"'
    return Step(argv=("/bin/sh", "-c", script, "sh", joint.decode(), NOTES), cwd=place.workspace, name=".edit")


def _not_brought(looked: ProcessResult, last: ProcessResult) -> str:
    """Why there is nothing to resolve: the notes do not have the other writer's line; "" when they do."""
    if RIVAL_LINE.encode() in looked.stdout.tail:
        return ""
    said = (last.stdout.tail + b"\n" + last.stderr.tail).decode("utf-8", "replace").strip()
    return f"the other writer's work was not brought in: {said[-300:] or last.detail or last.state.value}"


def _joined_head(stage: Stage, case: str, joint: bytes) -> tuple[str | None, str, str]:
    """The branch's head if the server holds the work of both, why it does not, and what of it could not be read."""
    head = stage.subject.client_head(stage.probe, stage.places[case])
    place = stage.places[case] = replace(stage.places[case], published=head)
    truth = stage.read_back(case)
    reason = "; ".join(judge_joined(Expectation(branch=place.branch, head=head, content=joint), truth))
    return None if reason else head, reason, "; ".join(unread_of(truth))
