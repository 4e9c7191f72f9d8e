"""One refused publication of every subject, from the client's claim to the retry."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.integration.subjects.known import is_measured

from fairtrial.errors import HostError
from fairtrial.evidence.publication import ClientClaim, Delivery, ServerTruth, Verdict, decide_verdict
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.seed import NOTES
from fairtrial.loop.stage import Stage, open_stage
from fairtrial.loop.work import prepare
from fairtrial.model.loop import Manner, Motion, Place, Step, Transport
from fairtrial.model.process import ProcessResult
from fairtrial.wire.faults import Fault, FaultKind

NAMES = ("git", "hg", "fossil", "oak", "jj")
# Of the versions that were measured. Exit status 0 is all that a caller of fossil can go by, and it is 0.
CLAIMS = dict.fromkeys(NAMES, ClientClaim.UNREPORTED) | {"fossil": ClientClaim.PUBLISHED}


def last(stage: Stage, steps: tuple[Step, ...]) -> ProcessResult:
    results = [stage.run_step(step) for step in steps]
    assert all(result.returncode in step.expected for result, step in zip(results, steps, strict=True)), results
    return results[-1]


def commit_a_note(stage: Stage, phase: str) -> Place:
    place = stage.places[phase]
    last(stage, stage.subject.steps(Motion.ACQUIRE, Manner.FRESH, place))
    (place.workspace / NOTES).write_text("noted\n")
    assert stage.subject.local_state(stage.probe, place).dirty is True
    last(stage, stage.subject.steps(Motion.SNAPSHOT, Manner.PLAIN, place))
    stage.settle_branch(phase)
    return stage.places[phase]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in NAMES])
def test_a_refused_publication_is_claimed_reconciled_and_retried(make_trial: Callable[..., object], name: str) -> None:
    spec, subject = make_trial(name, Transport.HTTP)
    refuse = Fault(match=subject.publication_request, nth=1, kind=FaultKind.STATUS, parameter=503)
    with open_stage(spec, SCENARIOS["task_loop"], subject) as stage:
        assert stage.server is not None
        prepare(stage, None, [])  # type: ignore[arg-type]
        place = commit_a_note(stage, "task")
        (publish,) = subject.steps(Motion.PUBLISH, Manner.PLAIN, place)
        head = subject.client_head(stage.probe, place)

        stage.server.set_faults([refuse])
        refused = stage.run_step(publish)
        forward = stage.server.ledger().forward
        assert forward is not None
        assert forward.faults_as_planned, forward.requests
        assert subject.claim(refused) is CLAIMS[name] or not is_measured(name), refused
        assert (refused.returncode != 0) or subject.belied(Motion.PUBLISH, refused)
        truth = subject.read_truth(stage.probe, place, NOTES, Transport.HTTP)
        assert [(reading.head, reading.failed) for reading in truth.readings] == [(None, False)] * 2, truth.readings
        assert subject.reconciled_head(place, last(stage, subject.reconcile(place))) is None
        state = subject.local_state(stage.probe, place)
        assert state.dirty is False
        assert state.unpublished is (name != "fossil") or not is_measured(name)  # fossil forgets what it tried to send
        assert subject.client_head(stage.probe, place) == head

        stage.server.set_faults([])
        retried = stage.run_step(publish)
        assert subject.claim(retried) is ClientClaim.PUBLISHED, retried
        assert subject.belied(Motion.PUBLISH, retried) == ""
        assert subject.reconciled_head(place, last(stage, subject.reconcile(place))) == head
        truth = subject.read_truth(stage.probe, place, NOTES, Transport.HTTP)
        assert [(reading.head, reading.content) for reading in truth.readings] == [(head, b"noted\n")] * 2
        assert truth.integrity is True, truth.integrity_detail


# Exit status and claim of a publication to a server that has ended, by the versions that were measured.
DOWN = {
    "git": (128, ClientClaim.REJECTED),
    "hg": (255, ClientClaim.REJECTED),
    "fossil": (0, ClientClaim.PUBLISHED),
    "oak": (6, ClientClaim.REJECTED),
    "jj": (1, ClientClaim.REJECTED),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in NAMES])
def test_a_publication_to_a_server_that_is_down_keeps_the_work_and_is_judged(
    make_trial: Callable[..., object], name: str
) -> None:
    spec, subject = make_trial(name, Transport.HTTP)
    with open_stage(spec, SCENARIOS["task_loop"], subject) as stage:
        prepare(stage, None, [])  # type: ignore[arg-type]
        place = commit_a_note(stage, "task")
        head = subject.client_head(stage.probe, place)
        assert stage.stop_servers()
        (publish,) = subject.steps(Motion.PUBLISH, Manner.PLAIN, place)
        result = stage.run_step(publish)
        assert subject.store_head(stage.probe, place) is None
        readings = subject.read_truth(stage.probe, place, NOTES, Transport.HTTP).readings
        assert [(reading.head, reading.failed) for reading in readings] == [(None, False), (None, True)], readings
        nowhere = replace(place, store=place.store.with_name("nowhere.git"))
        with pytest.raises(HostError, match="cannot be read"):
            subject.store_head(stage.probe, nowhere)
        assert subject.client_head(stage.probe, place) == head
        claim = subject.claim(result)
        assert (result.returncode, claim) == DOWN[name] or not is_measured(name), result
        verdict = decide_verdict(claim, Delivery.NOT_SENT, ServerTruth.ABSENT)
        assert (verdict is Verdict.FALSE_SUCCESS) is (claim is ClientClaim.PUBLISHED)


@pytest.mark.needs("git")
def test_git_is_recorded_with_the_libcurl_that_it_speaks_http_by(make_trial: Callable[..., object]) -> None:
    _, subject = make_trial("git", Transport.HTTP)
    assert re.fullmatch(r"\d+\.\d+\.\d+", subject.probe().details["libcurl"])
