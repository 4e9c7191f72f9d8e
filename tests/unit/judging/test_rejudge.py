from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.evidence.endings import EndingKind
from fairtrial.judging.rejudge import (
    Judgement,
    Part,
    describe_judgement,
    encode_judgement,
    oracle_of,
    parse_judgement,
    verdict_changes,
)
from fairtrial.judging.values import (
    CapturedFile,
    Counts,
    OracleSpec,
    OracleVerdict,
    Place,
    Proof,
    Runner,
    Surroundings,
)
from fairtrial.model.sandbox import Bind

STORE = Path("/store")
ORACLE = OracleSpec(
    command="tests/test_a.py",
    files=(CapturedFile(target="tests/test_a.py", place=Place.WORKSPACE, source=STORE / "ab", sha256="ab", n_bytes=7),),
    runner=Runner.PYTEST,
    expect_tests=2,
)
AROUND = Surroundings(env={"PATH": "/usr/bin"}, binds=(Bind(source=Path("/opt/venv"), target="/opt/venv"),))
PASSED = OracleVerdict(
    passed=True,
    kind=None,
    reason="",
    proof=Proof.PROVEN,
    counts=Counts(n_passed=2, n_failed=0, n_skipped=0),
    returncode=0,
)


def judgement() -> Judgement:
    return describe_judgement(ORACLE, AROUND, PASSED, commit="c0", change_sha256="cd", part=Part.WHOLE)


def test_a_judgement_survives_being_written_and_read() -> None:
    assert parse_judgement(encode_judgement(judgement())) == judgement()


def test_the_oracle_is_rebuilt_from_digests() -> None:
    assert oracle_of(judgement(), lambda digest: STORE / digest) == ORACLE


def test_the_same_verdict_differs_in_nothing() -> None:
    assert verdict_changes(judgement(), replace(PASSED, elapsed_ms=99.0)) == ()


def test_each_difference_is_told() -> None:
    again = replace(
        PASSED,
        passed=False,
        kind=EndingKind.ORACLE_FAILED,
        counts=Counts(n_passed=1, n_failed=1, n_skipped=0),
        returncode=1,
    )
    assert verdict_changes(judgement(), again) == (
        "passed was True, is False",
        "kind was None, is oracle-failed",
        "counts was 2 passed, 0 failed, 0 skipped, is 1 passed, 1 failed, 0 skipped",
        "returncode was 0, is 1",
    )


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"schema": "judgement/1"}'])
def test_what_is_no_judgement_is_refused(text: bytes) -> None:
    with pytest.raises(IntegrityError, match="not a judgement"):
        parse_judgement(text)


def test_another_schema_is_refused() -> None:
    with pytest.raises(IntegrityError, match="schema judgement/9"):
        parse_judgement(encode_judgement(replace(judgement(), schema="judgement/9")))
