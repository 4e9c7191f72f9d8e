"""What is kept of an agent's output, whatever it prints."""

import hashlib
import json
import os
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


@pytest.mark.parametrize(
    "line",
    [b"\n", b"\xff\n", b"\xff", b'"\\', b'{"text":"' + b"x" * 1000 + b'"}\n', b'{"t":"\xc2\x80"}\n'],
    ids=["empty", "no text", "no end", "escaped", "events", "controls"],
)
def test_a_transcript_takes_no_more_than_its_share_whatever_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    for name in ("MOST_BYTES", "HEAD_BYTES", "TAIL_BYTES", "LONGEST_TEXT_BYTES"):
        monkeypatch.setattr(transcript, name, getattr(transcript, name) // 128)
    lines = kept(tmp_path, line * (transcript.MOST_BYTES // len(line)) * 2)
    assert (tmp_path / "kept").stat().st_size <= transcript.MOST_BYTES
    assert sum("omitted_bytes" in each for each in lines) >= 1


def test_a_transcript_takes_at_most_eight_mebibytes(tmp_path: Path) -> None:
    assert transcript.MOST_BYTES == transcript.HEAD_BYTES + 20 * transcript.TAIL_BYTES == 8 << 20
    kept(tmp_path, (b'{"text":"' + b"x" * 100_000 + b'"}\n') * 90)
    assert (7 << 20) - 20 * transcript.TAIL_BYTES < (tmp_path / "kept").stat().st_size <= 8 << 20


def test_of_an_event_that_alone_is_too_long_the_beginning_is_kept_as_text(tmp_path: Path) -> None:
    event = json.dumps({"messages": "x" * transcript.MOST_BYTES}).encode()
    first, last = kept(tmp_path, event + b'\n{"ended":true}\n')
    assert first["unparsed"] == event[: transcript.LONGEST_TEXT_BYTES].decode()
    assert first["omitted_bytes"] == len(event) + 1 - transcript.LONGEST_TEXT_BYTES
    assert last == {"ended": True}


def test_lines_without_end_come_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(b"x" * (transcript.LONGEST_LINE_BYTES + 1))
    with path.open("rb") as source:
        assert [len(line) for line in lines_of(source)] == [transcript.LONGEST_LINE_BYTES, 1]


CREDENTIALS = (
    *("authorization", "proxy-authorization", "x-api-key", "api-key", "api_key", "anthropic-api-key"),
    *("anthropic_api_key", "token", "access_token", "refresh_token", "secret", "client_secret", "cookie"),
    *("set-cookie", "password"),
)


@pytest.mark.parametrize("key", CREDENTIALS)
def test_a_text_under_the_key_of_a_credential_is_taken_out(tmp_path: Path, key: str) -> None:
    value = "hunter2hunter2"
    event = {"plain": 1, key: value, "deep": [{key.upper(): value}, {key.title(): [value, {"any": value}]}]}
    (line,) = kept(tmp_path, json.dumps(event).encode())
    mark = "[redacted:credential]"
    deep = [{key.upper(): mark}, {key.title(): [mark, {"any": mark}]}]
    assert line == {"plain": 1, key: mark, "deep": deep}


def test_counts_and_what_only_resembles_a_credential_are_kept(tmp_path: Path) -> None:
    event = {"input_tokens": 7, "token": 7, "secret": None, "password": "", "cookie": [True, 1.5], "tokens": "two"}
    assert kept(tmp_path, json.dumps(event).encode()) == [event]


def test_an_event_of_any_depth_is_looked_through(tmp_path: Path) -> None:
    depth = 600
    printed = b'{"a":' * depth + b'{"password":"hunter2hunter2"}' + b"}" * depth
    kept(tmp_path, printed)
    text = (tmp_path / "kept").read_text()
    assert (text.count('{"a":'), "hunter2" in text) == (depth, False)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"b":', b"}")], ids=["lists", "objects"])
def test_an_event_too_deep_to_be_read_or_only_to_be_written_again_is_kept_as_text(
    tmp_path: Path, opening: bytes, closing: bytes
) -> None:
    # Where either begins depends on how deep the caller stands.
    printed = [b'{"a":' + opening * depth + b"1" + closing * depth + b"}" for depth in range(1100)]
    raw, path = tmp_path / "raw", tmp_path / "kept"
    raw.write_bytes(b"\n".join(printed))
    write_transcript(raw, path, Redactor())
    lines = path.read_bytes().splitlines()
    assert (len(lines), lines[:600]) == (len(printed), printed[:600])
    assert lines[-1].startswith(b'{"unparsed":')


@pytest.mark.parametrize(
    "event",
    [
        {"aws_secret_" + "access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
        {"sk-" + "ant-api03-AbCdEfGh0123456789": 1, "sk-" + "ant-api03-IjKlMnOp0123456789": 2},
    ],
    ids=["a value with its key", "two keys alike"],
)
def test_what_is_no_object_without_its_secrets_is_kept_as_text(tmp_path: Path, event: dict[str, Any]) -> None:
    (line,) = kept(tmp_path, json.dumps(event).encode())
    assert line.keys() == {"unparsed"}
    assert "[redacted:" in line["unparsed"]
    assert not any(part in line["unparsed"] for part in ("wJalr", "AbCd", "IjKl"))


def test_a_record_of_a_transcript_is_true_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    raw, path = tmp_path / "raw", tmp_path / "kept"
    raw.write_bytes(b'{"password":"hunter2hunter2"}\n')
    mask = os.umask(0)
    try:
        record = write_transcript(raw, path, Redactor())
    finally:
        os.umask(mask)
    content = path.read_bytes()
    assert (record.name, *record.digest) == ("kept", hashlib.sha256(content).hexdigest(), len(content))
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_transcript(raw, path, Redactor())
