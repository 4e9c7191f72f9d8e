"""What is kept of an agent's output, whatever it prints."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairtrial.bench import transcript
from fairtrial.bench.transcript import lines_of, write_transcript
from fairtrial.store.redact import Redactor


def kept(tmp_path: Path, printed: bytes) -> list[dict[str, Any]]:
    raw, path = tmp_path / "raw", tmp_path / "kept"
    raw.write_bytes(printed)
    write_transcript(raw, path, Redactor(["planted-secret"]))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_keep_their_content_and_other_lines_their_text(tmp_path: Path) -> None:
    printed = b'{"b": 1, "a": "planted-secret"}\nno event\n[1]\n\xff\xfe'
    assert kept(tmp_path, printed) == [
        {"a": "[redacted:secret]", "b": 1},
        {"unparsed": "no event"},
        {"unparsed": "[1]"},
        {"unparsed": "\\xff\\xfe"},
    ]


def test_a_text_without_end_is_cut_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    (line,) = kept(tmp_path, b"x" * 100_000)
    assert (len(line["unparsed"]), line["omitted_bytes"]) == (65_536, 100_000 - 65_536)


def test_of_a_flood_the_two_ends_are_kept_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B58."""
    monkeypatch.setattr(transcript, "HEAD_BYTES", 1000)
    monkeypatch.setattr(transcript, "TAIL_BYTES", 200)
    printed = b"".join(b'{"n":%d}\n' % number for number in range(10_000))
    lines = kept(tmp_path, printed)
    omitted = [line["omitted_bytes"] for line in lines if "omitted_bytes" in line]
    numbers = [line["n"] for line in lines if "n" in line]
    assert len(lines) < 200
    assert (numbers[0], numbers[-1], len(omitted)) == (0, 9_999, 1)
    assert omitted[0] + sum(len(b'{"n":%d}\n' % number) for number in numbers) == len(printed)


def test_an_output_that_ends_soon_after_its_head_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "HEAD_BYTES", 1000)
    monkeypatch.setattr(transcript, "TAIL_BYTES", 1000)
    printed = b"".join(b'{"n":%d}\n' % number for number in range(150))
    assert [line["n"] for line in kept(tmp_path, printed)] == list(range(150))


def test_of_more_lines_than_anyone_reads_the_two_ends_are_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "HEAD_LINES", 10)
    monkeypatch.setattr(transcript, "TAIL_BYTES", 4)
    lines = kept(tmp_path, b"\n" * 1000)
    assert (len(lines), lines[10]) == (14, {"omitted_bytes": 987})


def test_lines_without_end_come_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"x" * (transcript.LONGEST_LINE_BYTES + 1))
    with path.open("rb") as source:
        assert [len(line) for line in lines_of(source)] == [transcript.LONGEST_LINE_BYTES, 1]
