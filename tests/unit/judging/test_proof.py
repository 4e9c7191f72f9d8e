import os

import pytest

from fairtrial.judging.proof import NONCE_FD, PROOF_FD, ProofChannel, read_proof
from fairtrial.judging.values import Counts, Proof

NONCE = "ab" * 32


def test_the_nonce_is_proof() -> None:
    assert read_proof(f"{NONCE}\n".encode(), NONCE) == (Proof.PROVEN, None)


def test_the_nonce_may_come_with_counts() -> None:
    said = f'{NONCE} {{"n_passed": 3, "n_failed": 0, "n_skipped": 1}}\n'
    assert read_proof(said.encode(), NONCE) == (Proof.PROVEN, Counts(n_passed=3, n_failed=0, n_skipped=1))


def test_nothing_is_no_proof() -> None:
    assert read_proof(b"", NONCE) == (Proof.MISSING, None)


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"x",
        NONCE[:-1].encode(),
        f"{NONCE}{NONCE}".encode(),
        f"{NONCE}\n{NONCE}\n".encode(),
        f"{NONCE} 3".encode(),
        f"{NONCE} {{".encode(),
        f"{NONCE} {{}}".encode(),
        f'{NONCE} {{"n_passed": true, "n_failed": 0, "n_skipped": 0}}'.encode(),
        f'{NONCE} {{"n_passed": -1, "n_failed": 0, "n_skipped": 0}}'.encode(),
        f'{NONCE} {{"n_passed": 1.0, "n_failed": 0, "n_skipped": 0}}'.encode(),
        f'{NONCE} {{"n_passed": 1, "n_failed": 0, "n_skipped": 0, "more": 1}}'.encode(),
        f"{NONCE} []".encode(),
        b"\xff\xfe",
    ],
)
def test_anything_else_is_wrong(said: bytes) -> None:
    assert read_proof(said, NONCE) == (Proof.WRONG, None)


def test_a_channel_gives_the_nonce_once_and_takes_it_back() -> None:
    with ProofChannel() as channel:
        nonce_fd, proof_fd = channel.pass_fds
        assert os.read(nonce_fd, 100) == f"{channel.nonce}\n".encode()
        assert os.read(nonce_fd, 100) == b""
        assert channel.read().proof is Proof.MISSING
        os.write(proof_fd, channel.nonce.encode())
        assert channel.read().proof is Proof.PROVEN
    assert NONCE_FD + 1 == PROOF_FD


def test_no_two_runs_have_the_same_nonce() -> None:
    with ProofChannel() as one, ProofChannel() as other:
        assert one.nonce != other.nonce
