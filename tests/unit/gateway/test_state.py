import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.gateway.control import TrialClosed, TrialOpening
from fairtrial.gateway.pace import Heard, News
from fairtrial.gateway.pacer import Pacer
from fairtrial.gateway.source import Provider
from fairtrial.gateway.state import TrialState
from fairtrial.gateway.trial import Trial
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


def test_others_go_on_while_a_trial_is_closed(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_ran = threading.Event()
    close = TrialState.close

    def close_slowly(state: TrialState) -> TrialClosed:
        assert others_ran.wait(60)
        return close(state)

    monkeypatch.setattr(TrialState, "close", close_slowly)

    async def main() -> TrialClosed:
        closing = asyncio.create_task(Trial(_state(tmp_path, upstream, Pacer())).close())
        for _ in range(100):
            await asyncio.sleep(0)
        others_ran.set()
        return await closing

    assert asyncio.run(main()).internal_error is None


def test_who_gives_up_closing_a_trial_waits_for_its_files_all_the_same(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, at_rest = threading.Event(), threading.Event(), threading.Event()
    close = TrialState.close

    def close_slowly(state: TrialState) -> TrialClosed:
        begun.set()
        assert go_on.wait(60)
        closed = close(state)
        at_rest.set()
        return closed

    monkeypatch.setattr(TrialState, "close", close_slowly)

    async def main() -> bool:
        closing = asyncio.create_task(Trial(_state(tmp_path, upstream, Pacer())).close())
        while not begun.is_set():
            await asyncio.sleep(0)
        closing.cancel()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await asyncio.gather(closing, return_exceptions=True)
        return at_rest.is_set() and closing.cancelled()

    assert asyncio.run(main())
