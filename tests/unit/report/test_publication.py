"""How the publication-honesty matrix is shown."""

from collections.abc import Iterator

import pytest
from rich.console import Console

from fairtrial.evidence.loop_report import LoopSummary, summarize_loop
from fairtrial.evidence.loop_runs import LoopFold
from fairtrial.report.loop import loop_report_json, render_loop_markdown, render_loop_terminal
from fairtrial.report.publication import brief_matrix_tables

CASE = {
    "fault_case": "reply_lost_reused",
    "connection_reuse": "reused",
    "valid": True,
    "client_claim": "rejected",
    "delivery": "replayed",
    "server_truth": "durable",
    "verdict": "false_failure",
    "retry_safe": True,
    "local_work_preserved": True,
    "server_integrity": True,
    "recovered": True,
    "recovery_calls": 1,
    "recovery_bytes": 1485,
    "recovery_ms": 33.04,
    "recovery_tokens": 37,
}


def total(subject: str, transport: str, **case: object) -> dict[str, object]:
    return {
        "subject": subject,
        "scenario": "publication_under_fault_v1",
        "run": 0,
        "operation": "publication_under_fault.total",
        "step_kind": "summary",
        "returncode": 0,
        "elapsed_ms": 5.0,
        "remote_transport": transport,
        "host": "vm",
        "null_control": subject.endswith("(null)"),
        "publications": [CASE | case],
    }


def summary(*rows: dict[str, object]) -> LoopSummary:
    fold = LoopFold()
    for row in rows:
        fold.add(row)
    return summarize_loop(fold)


def tables(markdown: str) -> Iterator[str]:
    return (part for part in markdown.split("\n## ") if part.startswith("Publication honesty"))


def test_the_matrix_has_claim_wire_server_verdict_and_cost() -> None:
    (table,) = tables(render_loop_markdown(summary(total("git", "http"))))
    facts = "reply_lost_reused | reused | rejected | replayed | durable | false_failure"
    assert f"| git | {facts} | yes | yes | yes | 1 | 37 | 1485 | 33.0 |" in table


def test_the_cost_of_unlike_cases_is_in_the_matrix_alone() -> None:
    console = Console(width=200, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        render_loop_terminal(summary(total("git", "http"), total("hg", "http")), console)
    assert "Publication honesty" in capture.get()
    assert "costs" not in capture.get()


def test_a_control_whose_own_tool_has_no_rows_yet_agrees_and_disagrees_with_nothing() -> None:
    assert "agreed" not in render_loop_markdown(summary(total("git(null)", "http"), total("hg", "http")))


def test_a_fork_stands_beside_what_the_server_holds() -> None:
    forked = summary(total("fossil", "http", verdict="true_success", fork_heads=["a"]))
    assert "| durable (fork: 1 other head) | true_success |" in render_loop_markdown(forked)
    assert "(fork: 2 other heads)" in render_loop_markdown(summary(total("fossil", "http", fork_heads=["a", "b"])))
    assert "fork" not in render_loop_markdown(summary(total("fossil", "http", fork_heads=[])))


def test_what_had_to_be_typed_at_the_server_stands_beside_the_recovery_that_failed() -> None:
    repaired = total("hg", "http", recovered=False, recovery_calls=5, server_repair=["hg recover"])
    assert "| 5 (failed; at the server: hg recover) |" in render_loop_markdown(summary(repaired))
    assert "| 5 (failed) |" in render_loop_markdown(summary(total("hg", "http", recovered=False, recovery_calls=5)))
    (section,) = loop_report_json(summary(repaired), sealed=False)["sections"]  # type: ignore[misc]
    assert section["publications"][0]["server_repair"] == "hg recover"


def test_unlike_transports_never_share_a_table() -> None:
    found = list(tables(render_loop_markdown(summary(total("git", "http"), total("git", "file", delivery=None)))))
    assert len(found) == 2
    assert "unmeasured" in found[0]


def test_a_control_that_agrees_is_told_in_a_sentence_and_one_that_does_not_has_a_line() -> None:
    (agreeing,) = tables(render_loop_markdown(summary(total("git", "http"), total("git(null)", "http"))))
    assert "git(null)" not in agreeing
    assert "agreed in 1 of 1 cases" in agreeing
    other = total("git(null)", "http", verdict="silent_recovery")
    (disagreeing,) = tables(render_loop_markdown(summary(total("git", "http"), other)))
    assert "| git(null) | reply_lost_reused |" in disagreeing
    assert "agreed in 0 of 1 cases" in disagreeing


def test_the_cost_of_faulted_runs_is_not_compared_between_subjects() -> None:
    (section,) = summary(total("git", "http"), total("hg", "http"), total("git(null)", "http")).sections
    assert section.control == section.differences == ()


def test_a_terminal_of_120_columns_shows_whole_words() -> None:
    console = Console(width=120, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        render_loop_terminal(summary(total("git", "http", verdict="unreported_but_durable")), console)
    text = capture.get()
    assert "unreported_but_durable" in text
    assert "reply_lost_reused" in text
    assert "1 calls, 37 tokens, 33.0 ms" in " ".join(text.split())


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ({"recovered": None, "recovery_calls": 0}, "not needed"),
        ({"recovered": False, "recovery_calls": 0, "server_repair": ["x"]}, "0 calls, 37 tokens, 33.0 ms (failed"),
        ({"valid": False, "verdict": None, "recovered": None}, "unmeasured calls"),
    ],
)
def test_only_a_recovery_that_nobody_needed_is_called_not_needed(case: dict[str, object], shown: str) -> None:
    (section,) = summary(total("hg", "http", **case)).sections
    (table,) = brief_matrix_tables(section)
    ((*_, cost),) = table.rows
    assert cost.startswith(shown)
    assert ("not needed" in cost) is (shown == "not needed")


def test_the_json_has_a_line_for_each_subject_and_case() -> None:
    report = loop_report_json(summary(total("git", "http"), total("git(null)", "http")), sealed=False)
    (section,) = report["sections"]  # type: ignore[misc]
    assert [(line["subject"], line["null_control"]) for line in section["publications"]] == [
        ("git", False),
        ("git(null)", True),
    ]
    assert CASE.items() - {("valid", True)} <= section["publications"][0].items()


def test_tasks_at_once_have_a_table_of_their_own() -> None:
    row = total("git", "http") | {
        "scenario": "parallel_tasks_v1",
        "operation": "parallel_tasks.total",
        "publications": None,
        "n_tasks": 8,
        "tasks_published": 6,
        "tasks_refused": {"task1": "task1.acquire", "task2": "task2.publish"},
        "lost_updates": 0,
        "parallel_work_wall_ms": 100.0,
        "parallel_publish_wall_ms": 50.5,
    }
    markdown = render_loop_markdown(summary(row))
    assert "| git | 0 | 8 | 6 | 2 | 0 | 100.0 | 50.5 |" in markdown.partition("repository over http on vm")[2]
