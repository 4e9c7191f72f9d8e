"""Transcripts become evidence only as they were recorded, and only where nobody else could have had a hand in them."""

from pathlib import Path

import pytest

from fairtrial.errors import HostError, IntegrityError
from fairtrial.evolve.evidence import ChosenRow
from fairtrial.evolve.material import read_transcripts
from fairtrial.store.artifacts import digest_bytes
from fairtrial.store.attempts import encode_outcome
from fairtrial.store.layout import OUTCOME, Results

KEY, NAME, SAID = "bench/linear/workflow/0", "transcript-work.jsonl", b'{"type": "result"}\n'
CHOSEN = (ChosenRow(key=KEY, attempt=1, transcripts=(NAME,), compact={}),)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A results directory in which one attempt has a transcript."""
    found = Results(root=tmp_path)
    directory = found.attempt_dir(KEY, 1)
    directory.mkdir(parents=True)
    digest = digest_bytes(SAID)
    artifact = {"sha256": digest.sha256, "bytes": digest.n_bytes}
    identity = {"sweep": "bench-1", "key": KEY, "attempt": 1}
    outcome = {"schema": "outcome/1", **identity, "artifacts": {NAME: artifact}, "rows": [{"schema": "bench-row/1"}]}
    (directory / OUTCOME).write_bytes(encode_outcome(outcome))
    (directory / NAME).write_bytes(SAID)
    (directory / NAME).chmod(0o600)
    return found


def test_a_transcript_that_is_as_it_was_recorded_is_read(results: Results) -> None:
    assert read_transcripts(results, CHOSEN) == {KEY: (SAID,)}


@pytest.mark.parametrize("content", [SAID + b" ", SAID.replace(b"result", b"forged")])
def test_another_size_or_another_digest_is_refused(results: Results, content: bytes) -> None:
    (results.attempt_dir(KEY, 1) / NAME).write_bytes(content)
    with pytest.raises(IntegrityError, match=f"{NAME}: is not the transcript that was recorded"):
        read_transcripts(results, CHOSEN)


def test_a_link_is_refused(results: Results, tmp_path: Path) -> None:
    path = results.attempt_dir(KEY, 1) / NAME
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="is not the transcript that was recorded"):
        read_transcripts(results, CHOSEN)


@pytest.mark.parametrize("mode", [0o640, 0o602])
def test_a_transcript_that_is_open_to_others_is_refused(results: Results, mode: int) -> None:
    (results.attempt_dir(KEY, 1) / NAME).chmod(mode)
    with pytest.raises(HostError, match=f"{NAME}: others may read or write this transcript.*chmod 600"):
        read_transcripts(results, CHOSEN)
