"""Our contexts by the conformance suite of contexts."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from fairtrial.testing.agents import NonconformityError
from fairtrial.testing.contexts import CONTEXT_CASES, ContextCase, ContextHands

pytestmark = [pytest.mark.needs("bwrap", "git"), pytest.mark.timeout(580)]

HANDS: Final = {
    "ctags": ContextHands(
        context="ctags", tool="find_symbol", arguments={"name": "add"}, answer="calc.py:1: function add"
    ),
    "gitnexus": ContextHands(
        context="gitnexus", tool="context", arguments={"name": "add"}, answer="Function:uses.py:twice"
    ),
}


# With root, sandboxes here run under another uid, for whom the Python that runs us may lie in a closed home.
MARKS: Final = {
    "ctags": [pytest.mark.needs("ctags"), pytest.mark.unprivileged],
    "gitnexus": [pytest.mark.needs("gitnexus")],
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS[name]) for name in HANDS])
@pytest.mark.parametrize("case", CONTEXT_CASES, ids=str)
def test_a_context_conforms(case: ContextCase, name: str, public_path: Path) -> None:
    case.check(HANDS[name], public_path)


@pytest.mark.needs("gitnexus")
def test_an_answer_that_is_not_the_right_one_is_no_conformity(public_path: Path) -> None:
    hands = replace(HANDS["gitnexus"], answer="elsewhere.py")
    with pytest.raises(NonconformityError, match=r"context answers .* without 'elsewhere.py'"):
        CONTEXT_CASES[-1].check(hands, public_path)
