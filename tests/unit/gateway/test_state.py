import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.gateway.control import TrialOpening
from fairtrial.gateway.pace import Heard, News
from fairtrial.gateway.pacer import Pacer
from fairtrial.gateway.source import Provider
from fairtrial.gateway.state import TrialState
from fairtrial.store.redact import Redactor
from fairtrial.wire.upstream import Upstream, parse_origin


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    upstream = Upstream(parse_origin("http://127.0.0.1:9"))
    yield upstream
    upstream.close()


def _state(tmp_path: Path, upstream: Upstream, pacer: Pacer) -> TrialState:
    opening = TrialOpening(
        trial="t", ledger=str(tmp_path / "w"), models=("m",), dialects=("openai-chat",), upstream="up"
    )
    return TrialState(
        opening,
        source=Provider("up", upstream, "k" * 20),
        pacer=pacer,
        redactor=Redactor(),
        spool_directory=tmp_path,
        max_refused=10,
    )


def test_how_long_a_request_was_held_back_is_noted_also_of_one_that_never_goes_out(
    tmp_path: Path, upstream: Upstream
) -> None:
    async def main() -> tuple[float, float]:
        pacer = Pacer()
        state = _state(tmp_path, upstream, pacer)
        passed, held = (state.new_row(method="POST", path="/") for _ in range(2))
        await state.wait_for_place(passed)
        state.give_place_back(News(what=Heard.LIMITED, reason="status 429", retry_after_s=600))
        waiting = asyncio.create_task(state.wait_for_place(held))
        while not state.waited_s:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        state.close()
        return passed.waited_ms, held.waited_ms

    passed_ms, held_ms = asyncio.run(main())
    assert passed_ms == 0.0
    assert held_ms > 0
