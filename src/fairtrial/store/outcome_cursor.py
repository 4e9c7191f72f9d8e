"""An outcome's rows compared with the journal's, byte by byte as they stream past: no second parse, no second copy."""

from collections.abc import Mapping

from fairtrial.store.artifacts import FileDigest, read_digests
from fairtrial.store.attempts import check_identity, encode_outcome, parse_outcome
from fairtrial.store.chain import ChainedRow, render_row
from fairtrial.store.strict_json import MalformedJsonError, parse_object

__all__ = ["OutcomeCursor"]

_BEFORE_ROWS = b',"rows":['
_AFTER_HEAD = b',"sweep":'
_END = b"]}\n"


class OutcomeCursor:
    """A place in an outcome's rows.

    Attributes:
        sweep: Whose outcome it is.
        key: Key of the trial.
        attempt: Number of the attempt.
        artifacts: The files that it records, by path relative to the attempt's directory.
    """

    def __init__(self, path: str, data: bytes) -> None:
        """Open the bytes of an outcome.

        Raises:
            IntegrityError: It cannot be believed.
        """
        # Rows stand last and are proven by comparison, so in our own form only what is before them needs parsing. No
        # string can hold the mark: its quotes would be escaped.
        at = data.find(_BEFORE_ROWS)
        try:
            head = parse_object(data[: max(at, 0)] + b"}")
            self.sweep, self.key, self.attempt = check_identity(head)
            self.artifacts: Mapping[str, FileDigest] = read_digests(head)
        except MalformedJsonError:
            outcome = parse_outcome(path, data)
            self.sweep, self.key, self.attempt = outcome.sweep, outcome.key, outcome.attempt
            self.artifacts = outcome.artifacts
            data = encode_outcome(outcome.document)
            at = data.find(_BEFORE_ROWS)
        self._data = data
        self._at = at + len(_BEFORE_ROWS)

    def take(self, row: ChainedRow) -> bool:
        """Tell whether the outcome's next row is this one, and step over it."""
        data, at = self._data, self._at
        if row.rest_at >= 0:
            head = row.raw[: row.raw.index(_AFTER_HEAD)]
            if data.startswith(head, at) and data.startswith(row.raw[row.rest_at : -1], at + len(head)):
                return self._step(at + len(head) + len(row.raw) - 1 - row.rest_at)
        # Another program may write the same values in other bytes.
        own = render_row(row.parse())
        return data.startswith(b"".join(own), at) and self._step(at + len(own.head) + len(own.rest))

    def _step(self, at: int) -> bool:
        self._at = at + 1 if self._data[at : at + 1] == b"," else at
        return True

    def is_at_end(self) -> bool:
        """Tell whether every row was stepped over."""
        return self._data[self._at :] == _END
