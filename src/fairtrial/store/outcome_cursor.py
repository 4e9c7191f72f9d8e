"""An outcome's rows compared with the journal's, byte by byte as they stream past: no second parse, no second copy."""

from collections.abc import Mapping

from fairtrial.store.artifacts import FileDigest, read_digests
from fairtrial.store.attempts import OUTCOME_SCHEMA, ROWS_BEGIN, ROWS_END, ROWS_SEPARATOR, encode_outcome, parse_outcome
from fairtrial.store.chain import ChainedRow, Identity, render_row
from fairtrial.store.documents import BrokenDocumentError
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["OutcomeCursor", "read_artifacts"]

_AFTER_HEAD = b',"sweep":'


class OutcomeCursor:
    """A place in an outcome's rows.

    Attributes:
        artifacts: The files that it records, by path relative to the attempt's directory.
    """

    def __init__(self, path: str, data: bytes, identity: Identity) -> None:
        """Open the bytes of an outcome.

        Args:
            path: Where they were read.
            data: The bytes.
            identity: The attempt that it must belong to.

        Raises:
            IntegrityError: It cannot be believed, or belongs to another attempt.
        """
        # Rows stand last and are proven by comparison, so in our own form only what is before them needs parsing.
        artifacts: Mapping[str, FileDigest] | None = read_artifacts(data, identity[1:4])
        if artifacts is None:
            outcome = parse_outcome(path, data)
            if (outcome.sweep, outcome.key, outcome.attempt) != (identity.sweep, identity.key, identity.attempt):
                whose = f"attempt {outcome.attempt} of {outcome.key!r} in sweep {outcome.sweep!r}"
                raise BrokenDocumentError(f"{path}: belongs to {whose}")
            artifacts = outcome.artifacts
            data = encode_outcome(outcome.document)
        self.artifacts = artifacts
        self._data = data
        self._at = data.find(ROWS_BEGIN) + len(ROWS_BEGIN)

    def take(self, row: ChainedRow) -> bool:
        """Tell whether the outcome's next row is this one, and the last if it is final; step over it."""
        if row.rest_at >= 0:
            raw = row.raw
            if self._step(raw[: raw.index(_AFTER_HEAD)] + raw[row.rest_at : -1], row):
                return True
        # Another program may write the same values in other bytes.
        return self._step(b"".join(render_row(row.parse())), row)

    def _step(self, own: bytes, row: ChainedRow) -> bool:
        due = own + (ROWS_END if row.final else ROWS_SEPARATOR)
        if not self._data.startswith(due, self._at):
            return False
        self._at += len(due)
        return not row.final or self._at == len(self._data)


def read_artifacts(data: bytes, identity: tuple[str, str, int]) -> dict[str, FileDigest] | None:
    """Read the artifacts from the bytes of an outcome, without its rows; None when they are not in our form.

    Args:
        data: The bytes.
        identity: The sweep, key and attempt that it must belong to; None is returned when it does not.
    """
    # No string can hold the mark: its quotes would be escaped.
    head = data[: max(data.find(ROWS_BEGIN), 0)] + b"}"
    try:
        document = parse_object(head)
        own = (document.get("schema"), document.get("sweep"), document.get("key"), document.get("attempt"))
        return read_digests(document) if own == (OUTCOME_SCHEMA, *identity) else None
    except MalformedJsonError:
        return None
