"""What a partial clone of the seeded trunk would move: it is cloned whole and in part, once a run, over http.

The tasks have published by then; their branches are no part of what is cloned.
"""

import time
from collections.abc import Mapping
from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.janitor import SWEEP_VARIABLE
from fairtrial.loop.rows import Row, RowBuilder
from fairtrial.loop.stage import SERVER_ENVIRONMENT, Stage
from fairtrial.loop.work import forward_ledger
from fairtrial.model.loop import Step, Transport
from fairtrial.wire.client import WireServer
from fairtrial.wire.settings import FRONT, ForwardSettings, FrontSettings, WireSettings

__all__ = ["compare_partial_clone"]

OPERATION: Final = "comparator.partial_clone"
CLONES: Final[Mapping[str, tuple[str, ...]]] = {
    "full": (),
    "partial": ("--filter=blob:none",),
    "partial_sparse": ("--filter=blob:none", "--sparse"),
}
NO_FRONT: Final = "only git's own store has a server here that filters"


def compare_partial_clone(stage: Stage, builder: RowBuilder, rows: list[Row]) -> Row:
    """Clone in each way, count, and give the total's fields; the harness's row is appended."""
    front = stage.subject.server(Transport.HTTP, stage.root / "served")
    if not isinstance(front, FrontSettings) or stage.spec.loop.transport is Transport.HOSTED:
        return {"partial_clone_comparator": None, "partial_clone_reason": NO_FRONT}
    begun_s = time.perf_counter()
    try:
        found = _clone_all(stage, front)
    except HostError as problem:
        return {"partial_clone_comparator": None, "partial_clone_reason": str(problem)}
    elapsed_ms = (time.perf_counter() - begun_s) * 1000
    rows.append(builder.harness(OPERATION, elapsed_ms=elapsed_ms, n_commands=len(CLONES)))
    return {"partial_clone_comparator": found, "partial_clone_reason": None}


def _clone_all(stage: Stage, front: FrontSettings) -> dict[str, object]:
    place = stage.places[stage.scenario.phases[0]]
    with WireServer() as server:
        settings = WireSettings(front=front, forward=ForwardSettings(upstream=FRONT))
        port = server.start(settings, {**SERVER_ENVIRONMENT, SWEEP_VARIABLE: stage.spec.sweep})
        remote = stage.subject.remote(Transport.HTTP, place.store, port)
        found: dict[str, object] = {}
        for name, options in CLONES.items():
            before = forward_ledger(server)
            target = str(stage.root / f"comparator-{name}")
            argv = (front.git, "clone", "-q", "--single-branch", *options, "-b", place.trunk, remote, target)
            stage.prepare((Step(argv=argv, cwd=stage.root),))
            after = forward_ledger(server)
            found[name] = {
                "up_bytes": after.bytes.client_to_proxy - before.bytes.client_to_proxy,
                "down_bytes": after.bytes.proxy_to_client - before.bytes.proxy_to_client,
                "requests": len(after.requests) - len(before.requests),
            }
    return found
