"""Publication under fault where no request can be read: a store's own failures, TCP cuts, a stand-in for ssh."""

from collections.abc import Callable
from typing import Any

import pytest

from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Transport

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(600)]

Row = dict[str, Any]
MakeTrial = Callable[..., Any]
KILLS = {
    "server_refuses": "absent",
    "server_killed_before": "absent",
    "server_killed_after": "durable",
    "server_killed_at_report": "durable",
}
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
OVER_TCP = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("git", "hg", "fossil", "oak")]


def play(make_trial: MakeTrial, name: str, transport: Transport, *faults: str) -> tuple[Row, dict[str, Row]]:
    spec, subject = make_trial(name, transport, "publication_under_fault_v1", faults=faults)
    rows = list(run_loop_trial(spec, subject).rows)
    assert rows[-1]["returncode"] == 0, rows[-1]
    return rows[-1], {row["fault_case"]: row for row in rows if "fault_case" in row}


@pytest.mark.needs("git")
@pytest.mark.parametrize("transport", [Transport.FILE, Transport.NATIVE, Transport.SSH, Transport.HTTP])
def test_a_server_that_dies_leaves_the_truth_that_its_moment_says(make_trial: MakeTrial, transport: Transport) -> None:
    total, found = play(make_trial, "git", transport, *KILLS)
    assert {case: row["server_truth"] for case, row in found.items() if case in KILLS} == KILLS
    for row in found.values():
        assert row["fault_fired"] == (0 if row["fault_case"] == "control" else 1)
        assert row["connection_reuse"] == ("reused" if transport is Transport.HTTP else None)
        assert (row["delivery"] is None) is (transport is Transport.FILE)
        assert row["retry_safe"], row["retry_failures"]
    assert found["server_refuses"]["verdict"] == "true_rejection"
    assert (total["network_bytes"] is None) is (transport is Transport.FILE)


@pytest.mark.parametrize("name", OVER_TCP)
def test_a_cut_of_the_tools_own_protocol_is_told_by_the_forwarder(make_trial: MakeTrial, name: str) -> None:
    _, found = play(make_trial, name, Transport.NATIVE, *STREAM)
    for case, (delivery, truth) in STREAM.items():
        row = found[case]
        assert row["valid"], row["invalid_reason"]
        replayed = row["delivery"] == "replayed"  # hg sends again when a connection that it reuses has died
        assert replayed or row["delivery"] == delivery, row
        assert row["server_truth"] == ("durable" if replayed else truth), row
        assert row["local_work_preserved"]
        assert row["retry_safe"], row["retry_failures"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("git", "hg")])
def test_a_connection_that_ssh_loses_is_told_by_the_stand_in(make_trial: MakeTrial, name: str) -> None:
    _, found = play(make_trial, name, Transport.SSH, *SSH)
    for case, (delivery, truth) in SSH.items():
        row = found[case]
        assert row["valid"], row["invalid_reason"]
        assert (row["delivery"], row["server_truth"]) == (delivery, truth), row
        assert row["retry_safe"], row["retry_failures"]


@pytest.mark.needs("git")
def test_over_git_s_own_protocol_a_killed_clients_push_lands_later(make_trial: MakeTrial) -> None:
    _, found = play(make_trial, "git", Transport.NATIVE, "stream_client_killed", "stream_stalled")
    killed, stalled = found["stream_client_killed"], found["stream_stalled"]
    assert (killed["client_claim"], killed["server_truth"], killed["verdict"]) == ("none", "durable_late", "late_apply")
    assert (stalled["client_timed_out"], stalled["server_truth"]) == (True, "durable")
