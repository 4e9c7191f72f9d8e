"""When a sweep stands still for a provider, and when it goes on or gives up."""

import json
from pathlib import Path

from fairtrial.gateway.control import ProviderState, ProviderStatus, Status
from fairtrial.store.events import EventLog
from fairtrial.store.layout import Results
from fairtrial.sweep.execute import Hold
from fairtrial.sweep.pause import ProviderWatch


class Scene:
    """A watch over a provider whose state the test sets."""

    def __init__(self, root: Path, wait_s: float = 1000.0) -> None:
        self.state = ProviderState.UP
        self.retry_in_s = 0.0
        self.said: list[str] = []
        self.results = Results(root=root)
        self.watch = ProviderWatch(self._status, wait_s=wait_s, say=self.said.append, events=EventLog(self.results))

    def _status(self) -> Status:
        reason = None if self.state is ProviderState.UP else "status 500"
        provider = ProviderStatus(
            upstream="p", state=self.state, reason=reason, retry_in_s=self.retry_in_s, n_limited=0
        )
        return Status(providers=(provider,), trials=0, internal_errors=())

    @property
    def events(self) -> list[str]:
        path = self.results.events_jsonl
        return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []


def test_while_all_is_well_trials_begin_and_nothing_is_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.watch.hold(3) is Hold.BEGIN
    assert (scene.events, scene.said, scene.watch.paused_s) == ([], [], 0.0)


def test_an_outage_is_one_pause_however_often_it_is_asked_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state = ProviderState.DOWN
    assert [scene.watch.hold(1), scene.watch.hold(0), scene.watch.hold(0)] == [Hold.WAIT] * 3
    scene.state = ProviderState.UP
    assert scene.watch.hold(0) is Hold.BEGIN
    assert scene.events == ["paused", "resumed"]
    assert len(scene.said) == 2
    assert scene.watch.paused_s > 0


def test_a_provider_that_returns_is_tried_by_one_trial_at_a_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state = ProviderState.RETURNING
    assert (scene.watch.hold(0), scene.watch.hold(1)) == (Hold.BEGIN, Hold.WAIT)


def test_a_short_quiet_is_sat_out_at_the_gateway_and_a_long_one_pauses(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.state = ProviderState.LIMITED
    scene.retry_in_s = 9.0
    assert scene.watch.hold(0) is Hold.BEGIN
    scene.retry_in_s = 60.0
    assert scene.watch.hold(0) is Hold.WAIT


def test_a_pause_that_lasts_too_long_is_given_up_for_good(tmp_path: Path) -> None:
    scene = Scene(tmp_path, wait_s=0.0)
    scene.state = ProviderState.DOWN
    assert scene.watch.hold(0) is Hold.GIVE_UP
    scene.state = ProviderState.UP
    assert scene.watch.hold(0) is Hold.GIVE_UP
    assert scene.events == ["paused", "given-up"]
    assert scene.watch.given_up is not None
    assert "p is down (status 500)" in scene.watch.given_up
