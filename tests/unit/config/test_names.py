import pytest

from fairtrial.config.names import require_known
from fairtrial.errors import UsageError


def test_a_known_name_is_returned() -> None:
    assert require_known("http", {"http", "file"}, what="transport", where="--transport") == "http"


def test_an_unknown_name_gets_the_near_miss_and_the_valid_names() -> None:
    with pytest.raises(UsageError) as caught:
        require_known("tsk_loop", ("task_loop", "agent_task"), what="scenario", where="--scenarios")
    message = "--scenarios: unknown scenario 'tsk_loop'; did you mean 'task_loop'? valid: agent_task, task_loop"
    assert str(caught.value) == message


def test_a_name_that_is_near_to_nothing_gets_the_valid_names_alone() -> None:
    with pytest.raises(UsageError, match=r"^--subjects: unknown subject 'zzz'; valid: git, hg$"):
        require_known("zzz", ("hg", "git"), what="subject", where="--subjects")


def test_a_case_slip_is_a_near_miss() -> None:
    with pytest.raises(UsageError, match="did you mean 'git'"):
        require_known("GIT", ("hg", "git"), what="subject", where="--subjects")


def test_no_valid_name_at_all_is_said() -> None:
    with pytest.raises(UsageError, match=r"valid: none$"):
        require_known("git", (), what="subject", where="--subjects")


def test_a_name_with_control_characters_or_without_end_stays_one_short_line() -> None:
    with pytest.raises(UsageError) as caught:
        require_known("\x1b[31m\n" * 100_000, ("git",), what="subject", where="--subjects")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
