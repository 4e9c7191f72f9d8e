import hashlib
import json
import os
from pathlib import Path

import pytest
from tests.unit.store.conftest import Made

from fairtrial.errors import HostError, IntegrityError
from fairtrial.store.journal import Journal
from fairtrial.store.reserve import prepare_reserve
from fairtrial.store.seal import read_seal, seals_last_row, set_aside_seal, write_seal


def test_a_seal_covers_every_file_but_itself_and_the_reserve(made: Made) -> None:
    made.record(0)
    made.results.report_md.write_bytes(b"abc")
    prepare_reserve(made.results)
    digest = made.seal()
    data = made.results.seal_json.read_bytes()
    assert digest == hashlib.sha256(data).hexdigest()
    document = json.loads(data)
    last = made.results.results_jsonl.read_bytes().splitlines(keepends=True)[-1]
    assert document["chain_head"] == hashlib.sha256(last).hexdigest()
    assert (document["n_rows"], document["sweep"]) == (3, made.sweep.sweep)
    assert document["sweep_json"] == made.sweep.digest
    directory = made.results.attempt_dir(made.key(0), 1).relative_to(made.results.root)
    names = [f"{directory}/{name}" for name in ("intent.json", "outcome.json", "transcript.txt")]
    assert list(document["artifacts"]) == ["report.md", *names]
    assert document["artifacts"]["report.md"] == {
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",  # FIPS 180-2, appendix B.1
        "bytes": 3,
    }
    seal = read_seal(made.results)
    assert seal is not None
    assert (seal.digest, seal.n_rows, len(seal.artifacts)) == (digest, 3, 4)


def test_a_directory_without_a_seal_has_none(made: Made) -> None:
    assert read_seal(made.results) is None
    assert not seals_last_row(made.results)


@pytest.mark.parametrize("what", ["link", "fifo", "sweep"])
def test_what_cannot_be_evidence_cannot_be_sealed(made: Made, what: str) -> None:
    made.record(0)
    with Journal.open(made.results, made.sweep) as journal:
        if what == "link":
            (made.results.root / "notes").symlink_to("/etc/passwd")
        elif what == "fifo":
            os.mkfifo(made.results.root / "notes")
        else:
            made.results.sweep_json.rename(made.results.root / "other")
            made.results.sweep_json.symlink_to("other")
        with pytest.raises(IntegrityError, match="not a regular file, so no evidence"):
            write_seal(made.results, journal)
    assert not made.results.seal_json.exists()


def test_a_directory_that_cannot_be_read_cannot_be_sealed(made: Made) -> None:
    with Journal.open(made.results, made.sweep) as journal:
        made.results.sweep_json.unlink()
        with pytest.raises(HostError, match=r"sweep\.json: cannot be read"):
            write_seal(made.results, journal)


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("sweep", None, "no sweep"),
        ("n_rows", "3", "n_rows is of another type"),
        ("artifacts", {"../a": {"sha256": "", "bytes": 0}}, "is no relative path"),
        ("artifacts", {"a": {"sha256": ""}}, "no bytes"),
    ],
)
def test_a_damaged_seal_is_named(made: Made, member: str, value: object, why: str) -> None:
    made.seal()
    document = json.loads(made.results.seal_json.read_bytes())
    made.results.seal_json.write_text(json.dumps(document | {member: value}))
    with pytest.raises(IntegrityError, match=rf"seal\.json: is damaged \(.*{why}"):
        read_seal(made.results)


def test_a_broken_seal_is_kept_when_the_sweep_goes_on(made: Made) -> None:
    set_aside_seal(made.results)
    assert not made.results.set_aside.exists()
    made.seal()
    set_aside_seal(made.results)
    assert not made.results.seal_json.exists()
    assert (made.results.set_aside / "seal.json").exists()
    made.seal()
    set_aside_seal(made.results)
    assert (made.results.set_aside / "seal.json-2").exists()


def test_a_seal_that_cannot_be_moved_away_is_explained(made: Made) -> None:
    made.seal()
    made.results.set_aside.touch()
    with pytest.raises(HostError, match="File exists"):
        set_aside_seal(made.results)


@pytest.mark.parametrize("n_characters", [1, 65_530, 65_536, 200_000])
def test_a_seal_names_the_last_row_however_long_it_is(made: Made, n_characters: int) -> None:
    made.seal()
    assert seals_last_row(made.results)
    with Journal.open(made.results, made.sweep) as journal:
        for trial in range(2):
            row = {"schema": "loop-row/1", "text": "x" * n_characters}
            journal.append([row], key=made.key(trial), attempt=1, plan_index=trial)
    assert not seals_last_row(made.results)
    made.seal()
    assert seals_last_row(made.results)
    with made.results.results_jsonl.open("ab") as file:
        file.write(b"{}\n")
    assert not seals_last_row(made.results)


def test_a_seal_without_its_journal_is_explained(made: Made, tmp_path: Path) -> None:
    made.seal()
    made.results.results_jsonl.rename(tmp_path / "away")
    with pytest.raises(HostError, match="No such file"):
        seals_last_row(made.results)
