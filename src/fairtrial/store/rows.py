"""Rows for those who derive something from them: streamed, strict, and of a known version.

Whether the chain holds is not asked here (`Journal.open` and `audit` do).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from fairtrial.errors import HostError, IntegrityError, UsageError
from fairtrial.store.chain import MAX_LINE_BYTES, read_lines
from fairtrial.store.strict_json import JsonObject, MalformedJsonError, parse_object, take

__all__ = ["ROW_SCHEMAS", "UPGRADES", "Upgrade", "read_rows"]

Upgrade = Callable[[JsonObject], JsonObject]

ROW_SCHEMAS: frozenset[str] = frozenset({"loop-row/1", "bench-row/1"})

# From an older version to its pure `upgrade_<row>_<n>_to_<n+1>`, which also sets the new `schema`; files are never
# rewritten.
UPGRADES: Mapping[str, Upgrade] = {}


def read_rows(
    path: Path,
    *,
    sweep_id: str | None = None,
    schemas: Collection[str] = ROW_SCHEMAS,
    upgrades: Mapping[str, Upgrade] = UPGRADES,
) -> Iterator[JsonObject]:
    """Read rows one by one, in constant memory.

    Args:
        path: A journal, or a bare file of rows.
        sweep_id: The sweep that every row must name; None for a bare file, whose rows may lack a schema.
        schemas: Versions that the caller understands.
        upgrades: How to get there from older ones.

    Raises:
        UsageError: There is no such file.
        HostError: It cannot be read.
        IntegrityError: A row cannot be believed; the message names its line.
    """
    try:
        file = path.open("rb", buffering=1 << 20)
    except FileNotFoundError:
        message = f"{path}: no such file; name a results directory or a file of rows"
        raise UsageError(message) from None
    except OSError as error:
        message = f"{path}: cannot be read ({error.strerror}); name a readable results directory or file of rows"
        raise HostError(message) from error
    with file:
        for line, raw in enumerate(read_lines(file), start=1):
            try:
                row = _read_row(raw, sweep_id=sweep_id)
                if (sweep_id is not None or "schema" in row) and take(row, "schema", str) not in schemas:
                    row = _upgrade(row, schemas=schemas, upgrades=upgrades)
            except ValueError as error:
                raise IntegrityError(f"{path}:{line}: {error}") from None
            yield row


def _read_row(raw: bytes, *, sweep_id: str | None) -> JsonObject:
    if not raw.endswith(b"\n"):
        if len(raw) == MAX_LINE_BYTES:
            raise MalformedJsonError(f"the line is longer than {MAX_LINE_BYTES} bytes, as no row is")
        if sweep_id is not None:
            raise MalformedJsonError("the row is torn: the sweep was killed; finish it with `fairtrial resume`")
    row = parse_object(raw.removesuffix(b"\n"))
    if sweep_id is not None and row.get("sweep") != sweep_id:
        raise MalformedJsonError(f"belongs to sweep {row.get('sweep')!r}, not {sweep_id!r}; see `fairtrial audit`")
    return row


def _upgrade(row: JsonObject, *, schemas: Collection[str], upgrades: Mapping[str, Upgrade]) -> JsonObject:
    # One step more than there are upgrades would be a circle.
    for _ in range(len(upgrades)):
        upgrade = upgrades.get(take(row, "schema", str))
        if upgrade is None:
            break
        row = upgrade(row)
        if row["schema"] in schemas:
            return row
    raise MalformedJsonError(f"schema {row['schema']!r} is not known here; use the fairtrial that wrote it")
