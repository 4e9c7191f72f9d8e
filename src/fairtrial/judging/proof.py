"""The proof that a judge finished: a nonce that only the judge gets, and the way on which it gives it back."""

import json
import os
import secrets
from types import TracebackType
from typing import Final, NamedTuple, Self

from fairtrial.judging.values import Counts, Proof

__all__ = ["NONCE_FD", "PROOF_FD", "ProofChannel", "Proved", "read_proof"]

NONCE_FD: Final = 3
PROOF_FD: Final = 4
_MOST_BYTES: Final = 1 << 16
_NAMES: Final = ("n_passed", "n_failed", "n_skipped")


class Proved(NamedTuple):
    """What came out of a channel.

    Attributes:
        proof: Whether it is the proof.
        counts: What a runner counted, when it is.
    """

    proof: Proof
    counts: Counts | None


class ProofChannel:
    """Two pipes and a nonce, for one run. Use as a context manager.

    The nonce waits in a pipe, and not in the environment, where every child would find it: who reads it first has it,
    alone, and that is the judge, before it starts anything.

    Attributes:
        nonce: What must come back.
        pass_fds: The judge's ends, in the order of NONCE_FD and PROOF_FD.
    """

    def __init__(self) -> None:
        self.nonce = secrets.token_hex(32)
        nonce_read, nonce_write = os.pipe2(os.O_CLOEXEC)
        os.write(nonce_write, f"{self.nonce}\n".encode())
        os.close(nonce_write)
        self._proof_read, proof_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(proof_write, True)
        self.pass_fds = (nonce_read, proof_write)

    def read(self) -> Proved:
        """Read what was written, once nobody can write any more."""
        try:
            said = os.read(self._proof_read, _MOST_BYTES)
        except BlockingIOError:
            said = b""
        return read_proof(said, self.nonce)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in (*self.pass_fds, self._proof_read):
            os.close(fd)


def read_proof(said: bytes, nonce: str) -> Proved:
    """Tell what some bytes prove: the nonce alone, or with a runner's counts as JSON on the same line."""
    if not said:
        return Proved(Proof.MISSING, None)
    first, _, rest = said.strip().partition(b" ")
    if first != nonce.encode():
        return Proved(Proof.WRONG, None)
    if not rest:
        return Proved(Proof.PROVEN, None)
    counts = _counts(rest)
    return Proved(Proof.WRONG, None) if counts is None else Proved(Proof.PROVEN, counts)


def _counts(text: bytes) -> Counts | None:
    try:
        said: object = json.loads(text)
    except ValueError:
        return None
    if not isinstance(said, dict) or set(said) != set(_NAMES):  # pyright: ignore[reportUnknownArgumentType]
        return None
    values: list[object] = [said[name] for name in _NAMES]
    numbers = [value for value in values if type(value) is int and value >= 0]
    if len(numbers) != len(_NAMES):
        return None
    return Counts(n_passed=numbers[0], n_failed=numbers[1], n_skipped=numbers[2])
