"""What a trial does not cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fairtrial.host.git as our_git

pytestmark = pytest.mark.needs("bwrap", "git")


def test_a_trial_that_changed_nothing_calls_no_git(
    trial: Callable[..., dict[str, Any]], world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial(agent="nop")  # makes the template
    calls: list[str] = []
    run = our_git.run

    def note(argv: tuple[str, ...], **more: Any) -> Any:  # noqa: ANN401 - what it is given
        if more["cwd"] != world / "repo":  # binding the task looks there, before any trial
            calls.append(" ".join(argv))
        return run(argv, **more)

    monkeypatch.setattr(our_git, "run", note)
    assert trial(agent="nop")["error_kind"] == "oracle-failed"
    assert calls == []
    assert trial(agent="reference")["resolved"] is True
    assert calls, "a change is measured by git, so that a call would have been seen"
