"""Oak's own scenarios, and that every field of their rows is in the reference."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Motion, Step, Transport
from fairtrial.protocols import Subject

pytestmark = [pytest.mark.needs("oak"), pytest.mark.xdist_group("measurement")]

Row = dict[str, Any]
MakeTrial = Callable[..., Any]
INTERRUPTED, LOCAL = "interrupted_publication_after_request_v1", "agent_task_oak_local_v1"
PASSES = {
    "fixture_delivery_state": "complete_request_observed",
    "fixture_outcome_knowledge": "unknown_after_complete_request_disconnect",
    "fixture_received_complete_request_before_disconnect": True,
    "fixture_request_framing_valid": True,
    "fixture_request_body_timed_out": False,
    "mutation_requests_observed": 1,
    "blind_replay_requests": 0,
    "local_head_preserved": True,
    "worktree_payload_preserved": True,
    "unpublished_state_preserved": True,
    "local_work_preserved": True,
    "working_tree_dirty_after": False,
    "compatibility_probe_calls": 1,
    "harness_probe_calls": 3,
    "human_action_count": 0,
    "benchmark_track": "failure-evidence",
    "remote_transport": "loopback_fault_fixture",
    "remote_server": "127.0.0.1",
    "returncode": 0,
}


def play(make_trial: MakeTrial, scenario: str, **options: Any) -> list[Row]:  # noqa: ANN401 - as the fixture takes them
    return list(run_loop_trial(*make_trial("oak", Transport.HTTP, scenario, **options)).rows)


def test_an_interrupted_publication_keeps_the_clients_words_and_the_fixtures_apart(make_trial: MakeTrial) -> None:
    rows = play(make_trial, INTERRUPTED)
    assert [row["operation"] for row in rows] == [
        "setup.init",
        "setup.edit",
        "setup.checkpoint",
        "publication.attempt",
        "reconcile.local_state",
        "interrupted_publication.total",
    ]
    total, attempt = rows[-1], rows[3]
    assert PASSES.items() <= total.items(), total
    assert total["fixture_declared_request_bytes"] == total["network_request_bytes_observed"] > 100
    assert total["publication_outcome"] in {"unknown", "unreported"}
    assert attempt["expected_returncodes"] == list(range(1, 128))
    assert attempt["stderr"] + attempt["stdout"]
    assert total["harness_command_count"] == 3 + 3
    assert total["network_bytes"] == total["network_up_bytes"] + total["network_down_bytes"]
    assert total["network_up_bytes"] > total["network_request_bytes_observed"]


def test_an_attempt_that_never_reaches_the_fixture_is_no_evidence(make_trial: MakeTrial) -> None:
    def to_a_dead_port(plain: type[Subject]) -> type[Subject]:
        class ToADeadPort(plain):  # type: ignore[misc, valid-type]
            def remote(self, transport, store, port):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG002
                return "http://127.0.0.1:1"

        return ToADeadPort

    total = play(make_trial, INTERRUPTED, spoiled=to_a_dead_port)[-1]
    assert (total["returncode"], total["stderr"]) == (1, "interrupted_publication_evidence_incomplete")
    assert total["fixture_delivery_state"] == "no_request_observed"
    assert total["network_request_bytes_observed"] is None


def test_the_local_task_goes_on_with_the_branch_that_it_published(make_trial: MakeTrial) -> None:
    rows = play(make_trial, LOCAL)
    tasks = [operation.name for operation in SCENARIOS[LOCAL].operations]
    setup = ["setup.server", "setup.seed_init", "setup.seed_commit", "setup.seed_push"]
    end = ["cleanup.local_server_and_checkouts", "agent_task_oak_local.total"]
    assert [row["operation"] for row in rows] == [*setup, *tasks, *end]
    total = rows[-1]
    assert total["returncode"] == 0, total
    assert total["oracle_payload_matches"] is total["oracle_branch_head_matches"] is True
    assert total["oracle_payload_on_remote_branch"] is total["server_process_stopped"] is True
    assert len(set(total["workspace_branches"].values())) == 1
    assert total["network_bytes"] > 1000
    assert (total["benchmark_track"], total["remote_transport"]) == ("oak-local-loopback", "loopback_http")


def test_a_second_task_that_publishes_nothing_fails_both_halves_of_the_oracle(make_trial: MakeTrial) -> None:
    def publishing_once(plain: type[Subject]) -> type[Subject]:
        class PublishesOnce(plain):  # type: ignore[misc, valid-type]
            def steps(self, motion, manner, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                steps = super().steps(motion, manner, place)
                if motion is Motion.PUBLISH and place.workspace.name == "followup":
                    return (Step(argv=("/bin/true",), cwd=place.workspace),)
                return steps

        return PublishesOnce

    total = play(make_trial, LOCAL, spoiled=publishing_once)[-1]
    assert (total["returncode"], total["server_process_stopped"]) == (1, True)
    assert (total["oracle_payload_matches"], total["oracle_branch_head_matches"]) == (False, False)


@pytest.mark.parametrize("scenario", [INTERRUPTED, LOCAL])
def test_every_field_of_the_totals_is_in_the_reference(make_trial: MakeTrial, scenario: str, clone: Path) -> None:
    text = (clone / "docs/reference/loop-rows.md").read_text()
    own = text.partition(f"### Totals of `{scenario}`")[2].partition("\n#")[0]
    common = "".join(text.partition(f"## {heading}\n")[2].partition("\n## ")[0] for heading in ("Every row", "Totals"))
    common = common.partition("### Totals of `task_loop`")[0]
    total = play(make_trial, scenario)[-1]
    assert total.keys() <= set(re.findall(r"^\| `(\w+)` \|", common + own, re.MULTILINE))
    promised = set(re.findall(r"^\| `(\w+)` \| always", own, re.MULTILINE))
    assert promised <= total.keys()
