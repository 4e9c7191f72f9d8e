"""Proving an intact, sealed directory quickly: this process proves the rows, one beside it the files.

An outcome is read by both, as rows and as a file. Neither explains damage; `audit` does, alone.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass

from fairtrial.host.beside import can_work_beside, working_beside
from fairtrial.store.file_proof import FileProof, prove_files
from fairtrial.store.layout import Results
from fairtrial.store.row_proof import RowProof, prove_rows
from fairtrial.store.sweep_file import SweepFile

__all__ = ["Proof", "join", "prove"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a whole, sealed directory holds; every planned trial has rows.

    Attributes:
        seal_digest: SHA-256 of `seal.json` in hex.
        n_rows: Lines in the journal.
        n_attempts: Attempts with all their rows.
        n_counting: Planned trials with a counting attempt.
    """

    seal_digest: str
    n_rows: int
    n_attempts: int
    n_counting: int


def prove(
    results: Results,
    sweep: SweepFile,
    *,
    is_void: Callable[[Mapping[str, object]], bool],
    final_members: Collection[str],
    expect: str | None,
) -> Proof | None:
    """Prove a directory; None when it cannot be done, or anything is not as it should be. Arguments as for `audit`."""
    if not can_work_beside():
        return None
    with working_beside(lambda: _encode(prove_files(results, sweep))) as wait_result:
        rows = prove_rows(results, sweep, is_void=is_void, final_members=final_members)
        return None if rows is None else join(sweep, rows, _decode(wait_result()), expect=expect)


def join(sweep: SweepFile, rows: RowProof, files: FileProof | None, *, expect: str | None) -> Proof | None:
    """Hold the two halves against each other, the plan, and the digest of the seal that was kept elsewhere."""
    if files is None or (expect is not None and files.seal_digest != expect.lower()):
        return None
    told = (sweep.sweep, sweep.digest, rows.chain_head, rows.n_rows, rows.n_directories, rows.endings)
    seen = (files.sweep, files.sweep_json, files.chain_head, files.n_rows, files.n_directories, files.endings)
    if told != seen or rows.n_with_rows != len(sweep.plan_keys):
        return None
    return Proof(
        seal_digest=files.seal_digest, n_rows=rows.n_rows, n_attempts=rows.n_attempts, n_counting=rows.n_counting
    )


def _encode(files: FileProof | None) -> bytes:
    return b"" if files is None else json.dumps(asdict(files)).encode()


def _decode(data: bytes | None) -> FileProof | None:
    return FileProof(**json.loads(data)) if data else None
