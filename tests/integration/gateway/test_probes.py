"""A provider that is down is probed; a probe that hangs is one more failure, and holds nobody up."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairtrial.gateway.client import ask_status
from fairtrial.gateway.control import ProviderState, ProviderStatus

Scene = Any
Provider = Any
Handler = Any
MakeAnswer = Callable[..., object]
Eventually = Callable[..., None]


@pytest.fixture
def hang() -> Iterator[Callable[[Handler], None]]:
    """A provider that takes a probe in and never says a word; it notices when nobody waits any more."""
    over = threading.Event()

    def behave(handler: Handler) -> None:
        handler.close_connection = True
        handler.connection.settimeout(0.05)
        while not over.is_set():
            try:
                if handler.connection.recv(1) == b"":
                    handler.server.provider.broken += 1
                    return
            except TimeoutError:
                continue

    yield behave
    over.set()


def bring_down(scene: Scene, provider: Provider, make_answer: MakeAnswer) -> None:
    """Have the provider fail until it counts as down, with no pause before its first probe."""
    trial = scene.open()
    provider.then(*[make_answer(500, b"{}", {"retry-after": "0"})] * 3)
    assert [trial.ask().status for _ in range(3)] == [500] * 3
    assert status_of(scene).state is ProviderState.DOWN


def status_of(scene: Scene) -> ProviderStatus:
    """How the provider is; that this is asked has it probed when it is time to."""
    (status,) = ask_status(scene.control).providers
    return status


@pytest.mark.parametrize("own_settings", [{"probe_s": 0.5}])
def test_a_probe_that_hangs_is_given_up_and_the_next_one_finds_the_provider_back(
    own_scene: Scene,
    own_provider: Provider,
    make_answer: MakeAnswer,
    hang: Callable[[Handler], None],
    eventually: Eventually,
) -> None:
    own_provider.probes.append(hang)
    bring_down(own_scene, own_provider, make_answer)
    eventually(lambda: status_of(own_scene).reason == "no answer within 0.5 s")
    eventually(lambda: own_provider.broken == 1)  # its connection was closed, too
    eventually(lambda: status_of(own_scene).state is ProviderState.RETURNING)
    assert own_provider.n_probes >= 2  # on a busy machine the good one may not be answered in time either
    assert own_scene.open().ask().status == 200
    assert status_of(own_scene).state is ProviderState.UP
    assert ask_status(own_scene.control).internal_errors == ()


@pytest.mark.parametrize("own_settings", [{"probe_s": 3600.0}])
def test_one_probe_at_a_time_hangs_and_neither_the_gateways_word_nor_its_end_waits_for_it(
    own_scene: Scene,
    own_provider: Provider,
    make_answer: MakeAnswer,
    hang: Callable[[Handler], None],
    eventually: Eventually,
) -> None:
    own_provider.probes.extend([hang] * 9)
    bring_down(own_scene, own_provider, make_answer)
    eventually(lambda: status_of(own_scene) and own_provider.n_probes)
    assert [status_of(own_scene).state for _ in range(20)] == [ProviderState.DOWN] * 20
    assert own_provider.n_probes == 1
    assert own_provider.broken == 0
    own_scene.process.stop()  # complains when it had to kill it
    eventually(lambda: own_provider.broken == 1)
    assert not (own_scene.tmp / "gw").exists()
