"""What the versions that were measured say and do under a fault.

Of these alone it is asserted: another version that does something else is a new result, which the rows record, and no
red test. What is asserted of every version is the instrument and the verdict.
"""

from collections.abc import Mapping
from functools import cache

from tests.integration.subjects.conftest import CLASSES

from fairtrial.evidence.publication import ClientClaim, Delivery, ServerTruth, decide_verdict
from fairtrial.model.loop import Variant

__all__ = ["assert_harmless", "assert_judged", "facts_of", "is_measured", "version_of"]

Row = Mapping[str, object]

Facts = Mapping[str, tuple[int, str, str]]

# Measured: exit status, claim, verdict.
KNOWN: Mapping[tuple[str, str], Facts] = {
    ("git", "git version 2.39.5, libcurl 7.88"): {
        "control": (0, "published", "true_success"),
        "reply_lost_reused": (1, "rejected", "false_failure"),
        "reply_lost_fresh": (1, "unreported", "unreported_but_durable"),
        "request_lost_fresh": (1, "unreported", "unreported_failure_true"),
        "server_down": (128, "rejected", "true_rejection"),
        "client_killed": (-9, "none", "late_apply"),
        "server_refuses": (1, "rejected", "true_rejection"),
        "rival_first": (1, "rejected", "true_rejection"),
        "control_fresh": (0, "published", "true_success"),
        "every_reply_lost": (1, "unreported", "unreported_but_durable"),
        "reply_reset": (1, "rejected", "false_failure"),
        "reply_cut": (1, "unreported", "unreported_but_durable"),
        "request_lost": (0, "published", "silent_recovery"),
        "request_cut": (0, "published", "silent_recovery"),
        "request_reset": (0, "published", "silent_recovery"),
        "status_500": (1, "unreported", "unreported_failure_true"),
        "status_503": (1, "unreported", "unreported_failure_true"),
        "first_reply_lost": (128, "rejected", "true_rejection"),
        "request_delayed": (0, "published", "true_success"),
        "request_throttled": (0, "published", "true_success"),
        "rival_forced_over_reply_lost": (1, "rejected", "false_failure"),
    },
    ("hg", "Mercurial Distributed SCM (version 6.3.2)"): {
        "control": (0, "published", "true_success"),
        "request_cut": (0, "published", "silent_recovery"),
        "reply_cut": (255, "unreported", "unreported_but_durable"),
        "reply_lost_fresh": (255, "unreported", "unreported_but_durable"),
        "request_lost_fresh": (255, "unreported", "unreported_failure_true"),
        "server_down": (255, "unreported", "unreported_failure_true"),
        "client_killed": (-9, "none", "late_apply"),
        "server_refuses": (255, "rejected", "true_rejection"),
        "rival_first": (255, "rejected", "true_rejection"),
    },
    ("fossil", "fossil version 2.21"): {
        "control": (0, "published", "true_success"),
        "request_cut": (0, "published", "false_success"),
        "reply_cut": (0, "published", "true_success"),
        "request_reset": (0, "published", "false_success"),
        "reply_lost_reused": (0, "published", "true_success"),
        "reply_lost_fresh": (0, "published", "true_success"),
        "request_lost_fresh": (0, "published", "false_success"),
        "server_down": (0, "published", "false_success"),
        "client_killed": (-9, "none", "late_apply"),
        "server_refuses": (0, "published", "false_success"),
        "rival_first": (0, "published", "true_success"),
    },
    ("oak", "oak 0.102.0"): {
        "control": (0, "published", "true_success"),
        "request_cut": (6, "unreported", "unreported_failure_true"),
        "reply_cut": (6, "unreported", "unreported_but_durable"),
        "first_reply_lost": (6, "rejected", "true_rejection"),
        "reply_lost_reused": (6, "unreported", "unreported_but_durable"),
        "reply_lost_fresh": (6, "unreported", "unreported_but_durable"),
        "request_lost_fresh": (6, "unreported", "unreported_failure_true"),
        "server_down": (6, "rejected", "true_rejection"),
        "client_killed": (-9, "none", "late_apply"),
        "rival_first": (5, "rejected", "true_rejection"),
    },
    ("jj", "jj 0.45.1 by git version 2.47.3"): {
        "control": (0, "published", "true_success"),
        "reply_lost_reused": (1, "rejected", "false_failure"),
        "reply_lost_fresh": (1, "unreported", "unreported_but_durable"),
        "request_lost_fresh": (1, "unreported", "unreported_failure_true"),
        "server_down": (1, "rejected", "true_rejection"),
        "client_killed": (-9, "none", "late_apply"),
        "server_refuses": (1, "rejected", "true_rejection"),
        "rival_first": (1, "rejected", "true_rejection"),
    },
}
# What else of a program decides what it says: the library that speaks for git, the git that speaks for jj.
BESIDE = {"git": (", libcurl ", "libcurl"), "jj": (" by ", "git_version")}


@cache
def version_of(name: str) -> str:
    """What decides what the installed program does: its version, and that of the program or library behind it."""
    probe = CLASSES[name](Variant(name=name, subject=name, label=name)).probe()
    word, detail = BESIDE.get(name, ("", ""))
    return f"{probe.version}{word}{probe.details.get(detail, '')}"


def facts_of(name: str) -> Facts:
    """What the installed version is known to say of each case; nothing of a version that was never measured."""
    return next(
        (facts for (who, what), facts in KNOWN.items() if who == name and version_of(name).startswith(what)), {}
    )


def is_measured(name: str) -> bool:
    """Whether what the installed version does is known."""
    return bool(facts_of(name))


def assert_judged(row: Row) -> None:
    """Of every version: the verdict is the function of the three facts, and of nothing else."""
    delivery = None if row["delivery"] is None else Delivery(row["delivery"])
    claim, truth = ClientClaim(row["client_claim"]), ServerTruth(row["server_truth"])
    assert (row["valid"], row["verdict"]) == (True, decide_verdict(claim, delivery, truth)), row["invalid_reason"]


def assert_harmless(name: str, row: Row) -> None:
    """The client still has its work, and publishing once more does no harm: so it is with what was measured."""
    found = (row["local_work_preserved"], row["retry_safe"])
    assert found == (True, True) if is_measured(name) else None not in found, (row["fault_case"], row["retry_failures"])
