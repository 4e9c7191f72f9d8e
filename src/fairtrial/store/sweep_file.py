"""`sweep.json`: what was asked, with which inputs, and the plan. Written first and never again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from fairtrial.errors import UsageError
from fairtrial.store.documents import BrokenDocumentError, parse_document, read_bytes, write_document
from fairtrial.store.layout import Results, explain_refusal, trial_name
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, take, take_objects

__all__ = ["SWEEP_SCHEMA", "SweepFile", "parse_sweep", "read_sweep", "write_sweep"]

SWEEP_SCHEMA = "sweep/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFile:
    """A sweep as its `sweep.json` tells it.

    Attributes:
        sweep: The sweep's id, named in every row.
        lane: `loop` or `bench`.
        plan_keys: The keys of the planned trials; a key's position is its plan index.
        trial_names: The names of their directories, in the same order.
        digest: SHA-256 of the file's bytes in hex: where the chain of rows begins.
        document: The whole file.
    """

    sweep: str
    lane: str
    plan_keys: tuple[str, ...]
    trial_names: tuple[str, ...]
    digest: str
    document: JsonObject

    def plans(self, key: str, *, at: int) -> bool:
        """Tell whether a trial is planned at a place."""
        return 0 <= at < len(self.plan_keys) and self.plan_keys[at] == key


def write_sweep(results: Results, document: Mapping[str, object]) -> SweepFile:
    """Write `sweep.json` durably, before anything else.

    Raises:
        UsageError: There is one already.
        HostError: The file system refuses.
        ValueError: The document is not a sweep: a bug of the caller.
    """
    if results.sweep_json.exists():
        message = (
            f"{results.sweep_json}: there is a sweep already; finish it with `fairtrial resume`, or name another --out"
        )
        raise UsageError(message)
    _check(document)
    try:
        data = write_document(results.sweep_json, document)
    except OSError as error:
        raise explain_refusal(results.root, error) from error
    return parse_sweep(results, data)


def read_sweep(results: Results) -> SweepFile:
    """Read `sweep.json`.

    Raises:
        FileNotFoundError: It is not there.
        IntegrityError: It is damaged, or of a schema that is not known here.
    """
    return parse_sweep(results, read_bytes(results.sweep_json))


def parse_sweep(results: Results, data: bytes) -> SweepFile:
    """Read the bytes of `sweep.json`; see `read_sweep`."""
    document = parse_document(results.sweep_json, data, schema=SWEEP_SCHEMA)
    try:
        plan_keys, trial_names = _check(document)
        return SweepFile(
            sweep=take(document, "sweep", str),
            lane=take(document, "lane", str),
            plan_keys=plan_keys,
            trial_names=trial_names,
            digest=hashlib.sha256(data).hexdigest(),
            document=document,
        )
    except ValueError as error:
        message = f"{results.sweep_json}: is damaged ({error}); restore it from a copy"
        raise BrokenDocumentError(message) from None


def _check(document: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Check what the store itself relies on; return the plan's keys and the names of their directories."""
    if document.get("schema") != SWEEP_SCHEMA:
        message = f"schema is not {SWEEP_SCHEMA!r}"
        raise MalformedJsonError(message)
    if not take(document, "sweep", str) or not take(document, "lane", str):
        raise MalformedJsonError("sweep or lane is empty")
    keys: list[str] = []
    for position, entry in enumerate(take_objects(document, "plan")):
        keys.append(take(entry, "key", str))
        if take(entry, "plan_index", int) != position:
            message = f"plan entry {position} has another plan_index"
            raise MalformedJsonError(message)
    names = tuple(map(trial_name, keys))
    if len(set(names)) != len(names):
        raise MalformedJsonError("two plan entries have one key")
    return tuple(keys), names
