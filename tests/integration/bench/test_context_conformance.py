"""Our contexts by the conformance suite of contexts."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from fairtrial.host.files import remove_tree
from fairtrial.testing.agents import NonconformityError
from fairtrial.testing.contexts import CONTEXT_CASES, ContextCase, ContextHands, ContextWorld, make_world

pytestmark = [
    pytest.mark.needs("bwrap", "git"),
    pytest.mark.timeout(580),
    pytest.mark.xdist_group("context-conformance"),
]

HANDS: Final = {
    "ctags": ContextHands(
        context="ctags", tool="find_symbol", arguments={"name": "add"}, answer="calc.py:1: function add"
    ),
    "gitnexus": ContextHands(
        context="gitnexus", tool="context", arguments={"name": "add"}, answer="Function:uses.py:twice"
    ),
}


# With root, sandboxes here run under another uid, for whom the Python that runs us may lie in a closed home.
CONTEXTS: Final = [
    pytest.param("ctags", marks=[pytest.mark.needs("ctags"), pytest.mark.unprivileged]),
    pytest.param("gitnexus", marks=[pytest.mark.needs("gitnexus")]),
]


@pytest.fixture(scope="module")
def worlds() -> Iterator[Callable[[str], ContextWorld]]:
    """The world of each context that is asked for, made once: an index takes a quarter of a minute."""
    root = Path(tempfile.mkdtemp(prefix="", dir=os.environ["TMPDIR"]))
    root.chmod(0o711)
    made: dict[str, ContextWorld] = {}

    def world_of(name: str) -> ContextWorld:
        if name not in made:
            (root / name).mkdir()
            made[name] = make_world(HANDS[name], root / name)
        return made[name]

    yield world_of
    remove_tree(root)


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("case", CONTEXT_CASES, ids=str)
def test_a_context_conforms(case: ContextCase, name: str, worlds: Callable[[str], ContextWorld]) -> None:
    case.check(worlds(name))


@pytest.mark.parametrize("name", CONTEXTS)
def test_an_answer_that_is_not_the_right_one_is_no_conformity(name: str, worlds: Callable[[str], ContextWorld]) -> None:
    world = worlds(name)
    wrong = replace(world, hands=replace(world.hands, answer="elsewhere.py"))
    with pytest.raises(NonconformityError, match=rf"{world.hands.tool} answers .* without 'elsewhere.py'"):
        CONTEXT_CASES[-1].check(wrong)
