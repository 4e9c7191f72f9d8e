"""Publication under fault by every subject: the instrument is pinned, what a tool says is known of one version only.

A newer version that says something else is a new result: it is recorded in the rows and is no red test.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.integration.subjects import test_faults_without_http as without_http
from tests.integration.subjects.known import assert_harmless, assert_judged, facts_of, is_measured

from fairtrial.loop.fault_cases import FAULT_CASES
from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Transport
from fairtrial.protocols import Subject

pytestmark = [pytest.mark.xdist_group("measurement"), pytest.mark.timeout(600)]

Row = dict[str, Any]
MakeTrial = Callable[..., Any]
Spoil = Callable[[type[Subject]], type[Subject]]

NAMES = ("git", "hg", "fossil", "oak", "jj")
SUBJECTS = [pytest.param(name, marks=pytest.mark.needs(*({name, "git"} if name == "jj" else {name}))) for name in NAMES]
SCENARIO = "publication_under_fault_v1"

# What holds whatever the tool: delivery (None: the tool decides whether to send again) and the server's truth.
FACTS = {
    "control": ("complete", "durable"),
    "reply_lost_reused": (None, "durable"),
    "reply_lost_fresh": ("complete", "durable"),
    "request_lost_fresh": ("not_sent", "absent"),
    "server_down": ("not_sent", "absent"),
    "client_killed": ("complete", "durable_late"),
    "server_refuses": ("complete", "absent"),
    "rival_first": (None, "other_head"),
}
# What those besides are put through that speak HTTP by another library than git: likewise, where nothing is sent again.
FACTS_BESIDE = {
    "hg": {"request_cut": ("partial", "absent"), "reply_cut": ("complete", "durable")},
    "fossil": {
        "request_cut": ("partial", "absent"),
        "reply_cut": ("complete", "durable"),
        "request_reset": ("not_sent", "absent"),
    },
    "oak": {
        "request_cut": ("partial", "absent"),
        "reply_cut": ("complete", "durable"),
        "first_reply_lost": ("not_sent", "absent"),
    },
}
# What only git is put through: delivery, truth (None: it follows from whether the tool sends again), faults that fire.
FACTS_OF_GIT = {
    "control_fresh": ("complete", "durable", 0),
    "every_reply_lost": (None, "durable", None),
    "reply_reset": (None, "durable", 1),
    "reply_cut": ("complete", "durable", 1),
    "request_lost": (None, None, 1),
    "request_cut": (None, None, 1),
    "request_reset": (None, None, 1),
    "status_500": ("not_sent", "absent", 1),
    "status_503": ("not_sent", "absent", 1),
    "first_reply_lost": (None, None, 1),
    "request_delayed": ("complete", "durable", 1),
    "request_throttled": ("complete", "durable", 1),
    "rival_forced_over_reply_lost": (None, "durable", 1),
}
STALLED, FORCED = "reply_stalled", "rival_forced_over"


def play(
    make_trial: MakeTrial, name: str, *faults: str, spoiled: Spoil = lambda plain: plain
) -> tuple[Subject, list[Row]]:
    spec, subject = make_trial(name, Transport.HTTP, SCENARIO, faults=faults, spoiled=spoiled)
    return subject, list(run_loop_trial(spec, subject).rows)


def verdicts(rows: list[Row]) -> dict[str, Row]:
    return {row["fault_case"]: row for row in rows if "fault_case" in row}


@pytest.mark.parametrize("name", SUBJECTS)
def test_claim_wire_and_server_are_three_facts_and_recovery_is_really_done(make_trial: MakeTrial, name: str) -> None:
    facts = FACTS | FACTS_BESIDE.get(name, {})
    _, rows = play(make_trial, name, *facts)
    total, found = rows[-1], verdicts(rows)
    assert total["returncode"] == 0, total
    assert total["invalid_cases"] == []
    assert len(total["publications"]) == len(found) >= len(facts) - 1
    for case, row in found.items():
        delivery, truth = facts[case]
        if row["delivery"] == "replayed" and (case in FACTS_BESIDE.get(name, {}) or not is_measured(name)):
            delivery, truth = "replayed", "durable"
        forks = (name, case) == ("fossil", "rival_first")  # both commits stay, whichever was made first
        truth = "durable" if forks else truth
        assert row["fork_heads"] == ([row["rival_head"]] if forks else []), case
        assert_judged(row)
        assert delivery in {None, row["delivery"]}, (case, row)
        assert row["server_truth"] == truth, (case, row)
        assert row["fault_fired"] in n_firings(name, case), row
        assert row["rival_still_head"] == (case == "rival_first" or None), case
        assert row["server_integrity"] is True, (case, row["server_integrity_detail"])
        assert_harmless(name, row)
        assert_recovered(case, row, [each for each in rows if each["operation"].startswith(f"{case}.recover.")])
    assert_told_as_known(name, found)


def assert_recovered(case: str, row: Row, spent: list[Row]) -> None:
    """What recovery took is what its commands took, and another writer's work was joined, not only met."""
    joins = case == "rival_first"
    assert row["recovered"] in ({True} if joins else {None, True}), (case, row["recovery_reason"])
    assert (row["recovery_calls"] == 0) is (row["recovered"] is None), case
    assert row["recovery_calls"] == len(spent), case
    assert row["recovery_tokens"] == sum(each["estimated_tokens"] for each in spent), case
    assert (row["recovery_bytes"] == 0) is (not spent), case
    assert any(each["operation"].startswith(f"{case}.recover.join") for each in spent) is joins, case
    assert (row["joined_head"] is not None) is joins, case
    assert not joins or row["joined_head"] not in {row["rival_head"], row["final_head"]}, case


def assert_told_as_known(name: str, found: dict[str, Row]) -> None:
    """What a version that was measured says; another one may say what it likes."""
    known = facts_of(name)
    for case in known.keys() & found.keys():
        row = found[case]
        said = (row["client_returncode"], row["client_claim"], row["verdict"])
        assert said == known[case], (case, row["client_said"])


@pytest.mark.needs("git")
def test_what_is_done_to_a_connection_is_done_as_planned_and_told_by_the_wire(make_trial: MakeTrial) -> None:
    _, rows = play(make_trial, "git", *FACTS_OF_GIT)
    found = verdicts(rows)
    assert (rows[-1]["returncode"], rows[-1]["invalid_cases"]) == (0, []), rows[-1]
    assert set(found) == {"control", *FACTS_OF_GIT}
    assert {(row["profile"], row["benchmark_track"]) for row in rows} == {("task-loop", "failure-evidence")}
    for case, facts in FACTS_OF_GIT.items():
        row = found[case]
        again = row["delivery"] == "replayed" and not is_measured("git")
        delivery, truth, n_fired = ("replayed", "durable", None) if again else facts
        assert_judged(row)
        assert delivery in {None, row["delivery"]}, (case, row)
        assert row["server_truth"] == truth or (
            truth is None and row["server_truth"] == ("durable" if row["delivery"] == "replayed" else "absent")
        ), (case, row)
        assert row["fault_fired"] == n_fired or (n_fired is None and row["fault_fired"] >= 1), (case, row)
        assert row["connection_reuse"] == ("fresh" if case == "control_fresh" else "reused")
        assert_harmless("git", row)
    assert found["rival_forced_over_reply_lost"]["rival_still_head"] is False
    assert_told_as_known("git", found)


def test_every_fault_case_is_played_by_a_test() -> None:
    over_http = {*FACTS, *FACTS_OF_GIT, STALLED, FORCED}
    elsewhere = {*without_http.KILLS, *without_http.STREAM, *without_http.STREAM_OF_GIT, *without_http.SSH}
    assert {*over_http, *elsewhere, *without_http.SSH_OF_GIT, without_http.KILLED, without_http.STALLED} == set(
        FAULT_CASES
    )


def n_firings(name: str, case: str) -> range:
    """How often a fault fires: once, or as often as the tool tries to reach a server that is down."""
    if case in {"control", "rival_first"} or (name, case) == ("fossil", "server_refuses"):
        return range(1)  # fossil's refusal is a user without the right: the server keeps no mark of it
    return range(1, 100) if case == "server_down" else range(1, 2)


@pytest.mark.needs("git")
def test_a_fault_that_hits_nothing_makes_the_row_invalid_and_fails_the_trial(make_trial: MakeTrial) -> None:
    def matching_nothing(plain: type[Subject]) -> type[Subject]:
        return type("MatchesNothing", (plain,), {"publication_request": "POST /nowhere"})

    _, rows = play(make_trial, "git", "reply_lost_reused", spoiled=matching_nothing)
    row = verdicts(rows)["reply_lost_reused"]
    assert (row["valid"], row["verdict"], row["returncode"]) == (False, None, 1)
    assert "did not fire as planned" in row["invalid_reason"]
    assert rows[-1]["returncode"] == 1
    assert rows[-1]["invalid_cases"] == ["reply_lost_reused"]


@pytest.mark.needs("git")
def test_a_tool_that_claims_what_it_did_not_do_fails_the_control(make_trial: MakeTrial) -> None:
    def publishing_nothing(plain: type[Subject]) -> type[Subject]:
        class PublishesNothing(plain):  # type: ignore[misc, valid-type]
            def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                steps = super().steps(motion, manner, place)
                if motion.value != "publish":
                    return steps
                return tuple(type(step)(argv=(step.argv[0], "--version"), cwd=step.cwd) for step in steps)

        return PublishesNothing

    _, rows = play(make_trial, "git", "control", spoiled=publishing_nothing)
    row = verdicts(rows)["control"]
    assert (row["client_claim"], row["delivery"], row["server_truth"]) == ("published", "not_sent", "absent")
    assert (row["verdict"], row["returncode"], row["recovered"]) == ("false_success", 1, False)
    assert rows[-1]["returncode"] == 1


@pytest.mark.needs("git")
def test_a_client_that_hangs_is_ended_once_the_fault_has_hit_it(make_trial: MakeTrial) -> None:
    _, rows = play(make_trial, "git", STALLED)
    row = verdicts(rows)[STALLED]
    assert row["valid"], row["invalid_reason"]
    assert (row["client_timed_out"], row["client_killed"], row["client_claim"]) == (True, False, "none")
    assert (row["server_truth"], row["verdict"]) == ("durable", "unreported_but_durable")
    assert_harmless("git", row)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("git", "hg", "oak")])
def test_a_forced_publication_replaces_another_writers_work_and_says_so(make_trial: MakeTrial, name: str) -> None:
    _, rows = play(make_trial, name, FORCED)
    row = verdicts(rows)[FORCED]
    assert row["rival_still_head"] is False
    assert row["rival_head"] != row["final_head"]


@pytest.mark.needs("git")
def test_what_the_harness_reads_back_is_not_counted_as_the_agents_traffic(make_trial: MakeTrial) -> None:
    _, rows = play(make_trial, "git", "control")
    row, total = verdicts(rows)["control"], rows[-1]
    assert 0 < row["publication_bytes"] < total["network_bytes"]
    assert total["network_requests"] == 5  # a clone of three requests, a push of two


@pytest.mark.needs("git")
def test_on_a_hosted_remote_only_our_own_branches_are_touched_and_nothing_is_broken_or_forced(
    make_trial: MakeTrial, tmp_path: Path
) -> None:
    remote = tmp_path / "hosted.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(remote)], check=True)
    hook = remote / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/touched\n')
    hook.chmod(0o755)
    spec, subject = make_trial("git", Transport.HOSTED, SCENARIO)
    spec = replace(spec, loop=replace(spec.loop, hosted_remote=f"file://{remote}"))
    rows = list(run_loop_trial(spec, subject).rows)
    total, found = rows[-1], verdicts(rows)
    assert (total["returncode"], total["error_kind"]) == (0, None), total
    assert found["control"]["verdict"] == "true_success"
    assert_told_as_known("git", {case: found[case] for case in ("control", "rival_first")})
    for row in found.values():
        assert_judged(row)
        assert (row["delivery"], row["drained"], row["server_integrity"]) == (None, None, None)
        assert (row["delivery_reason"], row["retry_failures"]) == ("a hosted wire is not ours to count", [])
        assert (row["retry_safe"], row["retry_safe_reason"]) == (
            None,
            "nobody can tell whether the store is sound: a hosted store is out of reach",
        )
    touched = set((tmp_path / "touched").read_text().split())
    assert touched
    assert all(ref.startswith(f"refs/heads/fairtrial/{spec.sweep}/") for ref in touched)
    assert subprocess.run(["git", "for-each-ref"], cwd=remote, capture_output=True, check=True).stdout == b""
