"""Publication under fault where no request can be read: a store's own failures, TCP cuts, a stand-in for ssh."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.subjects.conftest import CLASSES
from tests.integration.subjects.known import assert_harmless, assert_judged, is_measured

from fairtrial.errors import HostError
from fairtrial.loop import faulted_case
from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Manner, Motion, Place, Step, Transport, Truth, Variant
from fairtrial.protocols import RunProbe
from fairtrial.subjects.git import Git

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(600)]

Row = dict[str, Any]
MakeTrial = Callable[..., Any]
KILLS = {
    "server_refuses": "absent",
    "server_killed_before": "absent",
    "server_killed_after": "durable",
    "server_killed_at_report": "durable",
}
REFUSED_BY_STORE = "server_refuses"
RIVAL, FORCED = "rival_first", "rival_forced_over"
STREAM = {
    "stream_reply_lost": ("complete", "durable"),
    "stream_cut": ("partial", "absent"),
    "stream_reset": ("not_sent", "absent"),
}
SSH = {
    "ssh_reply_lost": ("complete", "durable"),
    "ssh_cut": ("partial", "absent"),
    "ssh_reset": ("not_sent", "absent"),
}
# Of git alone: what they do to a connection is the instrument's doing, and that is the same for every tool.
STREAM_OF_GIT = {"stream_reply_reset": ("complete", "durable"), "stream_delayed": ("complete", "durable")}
SSH_OF_GIT = {"ssh_delayed": ("complete", "durable")}
# How the server's own program is called over ssh; git's client finds it beside itself, in its own `--exec-path`.
SERVED_BY = {"hg": "serve --stdio", "fossil": "test-http"}
OVER_SSH = [
    *(pytest.param(name, marks=pytest.mark.needs(name)) for name in ("git", "hg", "fossil")),
    pytest.param("jj", marks=pytest.mark.needs("jj", "git")),
]
BY_GIT = [pytest.param("git", marks=pytest.mark.needs("git")), pytest.param("jj", marks=pytest.mark.needs("jj", "git"))]
OVER_TCP = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("git", "hg", "fossil", "oak")]


def play(make_trial: MakeTrial, name: str, transport: Transport, *faults: str) -> tuple[Row, dict[str, Row]]:
    spec, subject = make_trial(name, transport, "publication_under_fault_v1", faults=faults)
    rows = list(run_loop_trial(spec, subject).rows)
    assert rows[-1]["returncode"] == 0, rows[-1].get("stderr", rows[-1])
    return rows[-1], {row["fault_case"]: row for row in rows if "fault_case" in row}


@pytest.mark.parametrize("transport", [Transport.FILE, Transport.NATIVE, Transport.SSH, Transport.HTTP])
@pytest.mark.parametrize("name", BY_GIT)
def test_a_server_that_dies_leaves_the_truth_that_its_moment_says(
    make_trial: MakeTrial, name: str, transport: Transport
) -> None:
    total, found = play(make_trial, name, transport, *KILLS)
    assert {case: row["server_truth"] for case, row in found.items() if case in KILLS} == KILLS
    for row in found.values():
        assert row["fault_fired"] == (0 if row["fault_case"] == "control" else 1)
        assert row["connection_reuse"] == ("reused" if transport is Transport.HTTP else None)
        assert (row["publication_bytes"] is None) is (transport is not Transport.HTTP)
        assert (row["delivery"] is None) is (transport is Transport.FILE)
        assert_judged(row)
        assert_harmless(name, row)
    assert (found["server_refuses"]["client_claim"] == "rejected") or not is_measured(name)
    assert {row["client_claim"] for row in found.values()} <= {"published", "rejected", "unreported"}
    assert (total["network_bytes"] is None) is (transport is Transport.FILE)


@pytest.mark.needs("hg")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.NATIVE, Transport.SSH])
def test_hg_s_server_that_dies_is_started_again_and_repaired_only_where_it_must_be(
    make_trial: MakeTrial, transport: Transport
) -> None:
    _, found = play(make_trial, "hg", transport, *KILLS)
    for case, truth in KILLS.items():
        row = found[case]
        assert row["valid"], row["invalid_reason"]
        assert (row["server_truth"], row["fault_fired"]) == (truth, 1), row
        killed = case != "server_refuses"
        assert row["server_revived"] is (killed and transport is not Transport.SSH), case
        assert_judged(row)
        assert_harmless("hg", row)
        assert row["final_truth"] is True
        inside = case == "server_killed_before"  # its transaction stays behind and blocks every push
        stuck = row["recovered"] is False, row["server_repair"] == ["hg recover"], row["server_integrity"] is False
        assert stuck == (inside,) * 3 if is_measured("hg") else stuck[0] is stuck[1], row["recovery_reason"]


@pytest.mark.needs("fossil")
@pytest.mark.parametrize("transport", [Transport.HTTP, Transport.NATIVE, Transport.SSH])
def test_fossil_claims_success_when_its_server_is_killed(make_trial: MakeTrial, transport: Transport) -> None:
    _, found = play(make_trial, "fossil", transport, "server_killed_before", "server_refuses")
    row = found["server_killed_before"]
    assert row["valid"], row["invalid_reason"]
    assert (row["server_truth"], row["fault_fired"], row["server_revived"]) == ("absent", 1, False)
    assert_judged(row)
    assert_harmless("fossil", row)
    if is_measured("fossil"):
        assert (row["recovered"], row["server_repair"], row["server_integrity"]) == (True, None, True)
    assert ("server_refuses" in found) is (transport is not Transport.SSH)  # there is no login that could be refused


@pytest.mark.parametrize("name", OVER_TCP)
def test_a_cut_of_the_tools_own_protocol_is_told_by_the_forwarder(make_trial: MakeTrial, name: str) -> None:
    cases = STREAM | (STREAM_OF_GIT if name == "git" else {})
    _, found = play(make_trial, name, Transport.NATIVE, *cases)
    for case, (delivery, truth) in cases.items():
        row = found[case]
        assert row["valid"], row["invalid_reason"]
        replayed = row["delivery"] == "replayed"  # hg sends again when a connection that it reuses has died
        assert replayed or row["delivery"] == delivery, row
        assert row["server_truth"] == ("durable" if replayed else truth), row
        assert_judged(row)
        assert_harmless(name, row)


@pytest.mark.parametrize("name", OVER_SSH)
def test_a_connection_that_ssh_loses_is_told_by_the_stand_in(make_trial: MakeTrial, name: str) -> None:
    cases = SSH | (SSH_OF_GIT if name == "git" else {})
    _, found = play(make_trial, name, Transport.SSH, *cases)
    for case, (delivery, truth) in cases.items():
        row = found[case]
        assert row["valid"], row["invalid_reason"]
        assert (row["delivery"], row["server_truth"]) == (delivery, truth), row
        assert_judged(row)
        assert_harmless(name, row)


@pytest.mark.parametrize(
    ("name", "served"), [pytest.param(name, words, marks=pytest.mark.needs(name)) for name, words in SERVED_BY.items()]
)
def test_over_ssh_the_program_that_a_variant_names_is_the_server_s_too(
    make_trial: MakeTrial, tmp_path: Path, name: str, served: str
) -> None:
    spec, _ = make_trial(name, Transport.SSH)
    program, log = tmp_path / "own-build", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {spec.loop.variant.binary} "$@"\n')
    program.chmod(0o755)
    variant = replace(spec.loop.variant, binary=str(program))
    spec = replace(spec, loop=replace(spec.loop, variant=variant))
    total = run_loop_trial(spec, CLASSES[name](variant)).rows[-1]
    assert (total["returncode"], total["oracle_payload_on_remote_branch"]) == (0, True), total
    assert served in log.read_text()


WITHOUT_FORCE = {"fossil", "jj"}
RIVALS = [
    *(
        pytest.param(name, transport, marks=pytest.mark.needs(name), id=f"{name}-{transport}")
        for name in ("git", "hg", "fossil")
        for transport in (Transport.FILE, Transport.NATIVE, Transport.SSH)
    ),
    *(
        pytest.param("jj", transport, marks=pytest.mark.needs("jj", "git"), id=f"jj-{transport}")
        for transport in (Transport.FILE, Transport.NATIVE, Transport.SSH)
    ),
    pytest.param("oak", Transport.NATIVE, marks=pytest.mark.needs("oak"), id="oak-native"),
]


@pytest.mark.parametrize(("name", "transport"), RIVALS)
def test_another_writer_is_met_and_forced_over_on_every_transport(
    make_trial: MakeTrial, name: str, transport: Transport
) -> None:
    _, found = play(make_trial, name, transport, RIVAL, FORCED)
    met = found[RIVAL]
    forks = name == "fossil"  # both commits stay, whichever was made first
    assert (met["server_truth"], bool(met["fork_heads"])) == (("durable", True) if forks else ("other_head", False))
    assert met["rival_still_head"] is True
    assert (met["recovered"], met["joined_head"] is None) == (True, False), met["recovery_reason"]
    assert (FORCED in found) is (name not in WITHOUT_FORCE)
    if FORCED in found:
        over = found[FORCED]
        assert (over["server_truth"], over["rival_still_head"], over["final_truth"]) == ("durable", False, True)
    for row in found.values():
        assert_judged(row)
        assert_harmless(name, row)
        assert row["server_integrity"] is True, row["server_integrity_detail"]


ELSEWHERE = [
    *(
        pytest.param(name, Transport.FILE, marks=pytest.mark.needs(*needs), id=f"{name}-file")
        for name, needs in (("hg", ("hg",)), ("fossil", ("fossil",)), ("jj", ("jj", "git")))
    ),
    pytest.param("jj", Transport.NATIVE, marks=pytest.mark.needs("jj", "git"), id="jj-native"),
]


@pytest.mark.parametrize(("name", "transport"), ELSEWHERE)
def test_a_store_that_refuses_leaves_nothing_and_the_work_can_be_sent_again(
    make_trial: MakeTrial, name: str, transport: Transport
) -> None:
    cases = [REFUSED_BY_STORE, *(STREAM if transport is Transport.NATIVE else ())]
    total, found = play(make_trial, name, transport, *cases)
    assert found["control"]["verdict"] == "true_success"
    assert (REFUSED_BY_STORE in found) is (name != "fossil")  # there is no login that could be refused
    for case, row in found.items():
        assert row["valid"], (case, row["invalid_reason"])
        assert row["server_truth"] == (STREAM | {REFUSED_BY_STORE: ("", "absent"), "control": ("", "durable")})[case][1]
        assert (row["delivery"] is None) is (transport is Transport.FILE)
        assert_judged(row)
        assert_harmless(name, row)
    assert (total["network_bytes"] is None) is (transport is Transport.FILE)


@pytest.mark.needs("git")
def test_a_named_case_that_the_transport_does_not_have_is_a_hole_that_says_so(make_trial: MakeTrial) -> None:
    spec, subject = make_trial("git", Transport.FILE, "publication_under_fault_v1", faults=("status_500",))
    rows = {row["operation"]: row for row in run_loop_trial(spec, subject).rows}
    hole, total = rows["status_500.verdict"], rows["publication_under_fault.total"]
    assert (hole["returncode"], hole["skip_reason"]) == (77, "status_500 is defined for transport http only")
    assert (total["returncode"], total["unmeasured_operations"]) == (0, ["status_500.verdict"]), total


KILLED, STALLED = "stream_client_killed", "stream_stalled"


class SlowToLand(Git):
    """A git whose store seems to get a push a while after the client's end, and first in one of two readings."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant)
        self.n_looks = 0
        self.n_readings = 0

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        self.n_looks += KILLED in place.branch
        return None if KILLED in place.branch and self.n_looks < 4 else super().store_head(run, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        self.n_readings += KILLED in place.branch
        truth = super().read_truth(run, place, path, transport)
        first, *others = truth.readings
        if KILLED in place.branch and self.n_readings == 1:
            first = replace(first, head=None, content=None)
        return replace(truth, readings=(first, *others))


@pytest.mark.needs("git")
def test_a_push_that_is_landing_while_the_store_is_read_is_read_again(make_trial: MakeTrial) -> None:
    spec, _ = make_trial("git", Transport.NATIVE, "publication_under_fault_v1", faults=(KILLED,))
    subject = SlowToLand(spec.loop.variant)
    row = next(row for row in run_loop_trial(spec, subject).rows if row.get("fault_case") == KILLED)
    assert row["valid"], row["invalid_reason"]
    assert (row["server_head_at_exit"], row["server_truth"], row["verdict"]) == (None, "durable_late", "late_apply")
    assert subject.n_looks >= 4


class LandsUnseen(Git):
    """A git whose store seems to get a push only when the client asks what became of it."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(variant)
        self.landed = False

    def reconcile(self, place: Place) -> tuple[Step, ...]:
        self.landed = KILLED in place.branch
        return super().reconcile(place)

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        return None if KILLED in place.branch and not self.landed else super().store_head(run, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        truth = super().read_truth(run, place, path, transport)
        readings = tuple(replace(each, head=None, content=None) for each in truth.readings)
        return truth if self.landed or KILLED not in place.branch else replace(truth, readings=readings)


@pytest.mark.needs("git")
def test_a_push_that_lands_after_the_store_was_read_is_no_evidence(
    make_trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulted_case, "LANDING_S", 0.0)
    spec, _ = make_trial("git", Transport.NATIVE, "publication_under_fault_v1", faults=(KILLED,))
    rows = list(run_loop_trial(spec, LandsUnseen(spec.loop.variant)).rows)
    row = next(row for row in rows if row.get("fault_case") == KILLED)
    assert (row["server_truth"], row["verdict"], row["valid"], row["returncode"]) == ("absent", None, False, 1)
    assert "landed after the store had been read" in row["invalid_reason"]
    assert (row["recovered"], row["recovery_publishes"], row["retry_safe"]) == (True, 0, True)
    assert (rows[-1]["returncode"], rows[-1]["invalid_cases"]) == (1, [KILLED])


class Unreadable(Git):
    """A git whose store, or whose wire, cannot be looked at so many times in one case."""

    def __init__(self, variant: Variant, *, n_blind: int, n_deaf: int) -> None:
        super().__init__(variant)
        self.n_blind = n_blind
        self.n_deaf = n_deaf

    def store_head(self, run: RunProbe, place: Place) -> str | None:
        if REFUSED_BY_STORE in place.branch and self.n_blind:
            self.n_blind -= 1
            raise HostError("the store is locked")
        return super().store_head(run, place)

    def read_truth(self, run: RunProbe, place: Place, path: str, transport: Transport) -> Truth:
        truth = super().read_truth(run, place, path, transport)
        if REFUSED_BY_STORE not in place.branch or not self.n_deaf:
            return truth
        self.n_deaf -= 1
        store, wire = truth.readings
        return replace(truth, readings=(store, replace(wire, head=None, content=None, detail="refused", failed=True)))


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("n_blind", "n_deaf", "reason"),
    [
        (2, 2, None),
        (3, 0, "nobody could look at the client's end: the store is locked"),
        (0, 3, "not everything could be read: wire: could not be read (refused)"),
        (0, 6, "not everything could be read: wire: could not be read (refused)"),
    ],
)
def test_a_look_that_fails_is_repeated_and_never_taken_for_an_absence(
    make_trial: MakeTrial, n_blind: int, n_deaf: int, reason: str | None
) -> None:
    spec, _ = make_trial("git", Transport.FILE, "publication_under_fault_v1", faults=(REFUSED_BY_STORE,))
    subject = Unreadable(spec.loop.variant, n_blind=n_blind, n_deaf=n_deaf)
    rows = list(run_loop_trial(spec, subject).rows)
    row = next(row for row in rows if row.get("fault_case") == REFUSED_BY_STORE)
    assert (row["valid"], row["invalid_reason"]) == (reason is None, reason)
    assert (row["verdict"] is None) is (reason is not None)
    assert row["retry_safe"] is (None if n_deaf == 6 else True)
    assert rows[-1]["invalid_cases"] == ([] if reason is None else [REFUSED_BY_STORE])
    assert (subject.n_blind, subject.n_deaf) == (0, 0)


class SilentRival(Git):
    """A git whose other writer ends with 0 and has published nothing."""

    def steps(self, motion: Motion, manner: Manner, place: Place) -> tuple[Step, ...]:
        if motion is Motion.PUBLISH and place.workspace.name.endswith("-rival"):
            return (Step(argv=("/bin/true",), cwd=place.workspace),)
        return super().steps(motion, manner, place)


@pytest.mark.needs("git")
def test_another_writer_who_published_nothing_disturbs_nothing_and_is_no_evidence(make_trial: MakeTrial) -> None:
    spec, _ = make_trial("git", Transport.FILE, "publication_under_fault_v1", faults=("rival_first",))
    rows = list(run_loop_trial(spec, SilentRival(spec.loop.variant)).rows)
    row = next(row for row in rows if row.get("fault_case") == "rival_first")
    assert (row["valid"], row["verdict"], row["returncode"]) == (False, None, 1)
    assert row["invalid_reason"].startswith("the other writer's work was not on the branch before the publication")
    assert rows[-1]["invalid_cases"] == ["rival_first"]


LATER = {
    "git": {"durable_late"},
    "hg": {"durable_late"},
    "fossil": {"durable_late"},
    "oak": {
        "durable_late",
        "absent",
    },  # its server drops a request if it finds out in time that the connection has ended
}


@pytest.mark.parametrize("name", OVER_TCP)
def test_over_a_tools_own_protocol_a_killed_clients_push_lands_later_or_never(make_trial: MakeTrial, name: str) -> None:
    _, found = play(make_trial, name, Transport.NATIVE, KILLED, STALLED)
    killed, stalled = found[KILLED], found[STALLED]
    assert killed["valid"], killed["invalid_reason"]
    assert (killed["client_claim"], killed["client_killed"], killed["delivery"]) == ("none", True, "complete")
    assert killed["server_head_at_exit"] is None
    assert killed["server_truth"] in LATER[name] or not is_measured(name), killed
    assert stalled["valid"], stalled["invalid_reason"]
    assert (stalled["client_timed_out"], stalled["server_truth"]) == (True, "durable")
    for row in (killed, stalled):
        assert row["recovered"], row["recovery_reason"]
        assert_judged(row)
        assert_harmless(name, row)
