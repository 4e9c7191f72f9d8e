"""What a tool claims, and when its own words belie its exit status: read from output that was seen, word for word."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fairtrial.evidence.publication import ClientClaim
from fairtrial.model.loop import Motion, Place, Transport, Variant
from fairtrial.model.process import ProcessResult, ProcessState
from fairtrial.protocols import Subject
from fairtrial.subjects.fossil import Fossil
from fairtrial.subjects.git import Git
from fairtrial.subjects.jujutsu import Jujutsu
from fairtrial.subjects.mercurial import Mercurial
from fairtrial.subjects.oak import Oak

SUBJECTS: dict[str, type[Subject]] = {"git": Git, "hg": Mercurial, "fossil": Fossil, "oak": Oak, "jj": Jujutsu}
MakeResult = Callable[..., ProcessResult]
ROUND_TRIP = """Push to http://bench@127.0.0.1:1
Round-trips: 1   Artifacts sent: 2  received: 0
Push done, wire bytes sent: 9
"""
OAK_SENDING = "error: HTTP error: error sending request for url (http://127.0.0.1:1/api/lane/store/{})\n"


def new(name: str) -> Subject:
    return SUBJECTS[name](Variant(name=name, subject=name, label=name))


@pytest.mark.parametrize(
    ("name", "returncode", "stderr", "claim"),
    [
        ("git", 0, "", ClientClaim.PUBLISHED),
        (
            "git",
            1,
            " ! [remote rejected] b -> b (cannot lock ref 'refs/heads/b': reference already exists)\n",
            ClientClaim.REJECTED,
        ),
        ("git", 1, " ! [rejected]        b -> b (non-fast-forward)\n", ClientClaim.REJECTED),
        ("git", 128, "fatal: unable to access 'http://127.0.0.1:1/': Failed to connect\n", ClientClaim.REJECTED),
        ("git", 1, "error: RPC failed; curl 52 Empty reply from server\n", ClientClaim.UNREPORTED),
        ("git", 128, "fatal: the remote end hung up unexpectedly\n", ClientClaim.UNREPORTED),
        ("hg", 0, "", ClientClaim.PUBLISHED),
        ("hg", 1, "", ClientClaim.PUBLISHED),
        (
            "hg",
            255,
            "abort: push failed:\n'remote repository changed while pushing - please try again'\n",
            ClientClaim.REJECTED,
        ),
        ("hg", 255, "remote: pretxnchangegroup.no hook exited with status 1\n", ClientClaim.REJECTED),
        ("hg", 255, "abort: error: Connection refused\n", ClientClaim.REJECTED),
        ("hg", 255, "abort: error: bad HTTP status line: ''\n", ClientClaim.UNREPORTED),
        # of a server that nobody reached, and of one that was killed when the push had landed
        ("hg", 255, "abort: error: Connection reset by peer\n", ClientClaim.UNREPORTED),
        ("hg", 255, "abort: HTTP Error 500: X\n", ClientClaim.UNREPORTED),
        ("fossil", 0, "cannot connect to host 127.0.0.1:1\n", ClientClaim.PUBLISHED),
        ("fossil", 1, "", ClientClaim.UNREPORTED),
        ("jj", 0, "", ClientClaim.PUBLISHED),
        ("jj", 1, "Warning: The remote rejected the following updates:\n", ClientClaim.REJECTED),
        ("jj", 1, "Warning: The following references unexpectedly moved on the remote:\n", ClientClaim.REJECTED),
        ("jj", 1, "fatal: the remote end hung up unexpectedly\n", ClientClaim.UNREPORTED),
        ("oak", 0, "", ClientClaim.PUBLISHED),
        ("oak", 6, OAK_SENDING.format("push"), ClientClaim.UNREPORTED),
        ("oak", 6, OAK_SENDING.format("branches/b"), ClientClaim.REJECTED),
        ("oak", 6, OAK_SENDING.replace("/{}", ""), ClientClaim.REJECTED),
        ("oak", 6, "error: Server error: HTTP 500 Internal Server Error: no\n", ClientClaim.UNREPORTED),
        ("oak", 6, "error: Server error: HTTP 403 Forbidden: no\n", ClientClaim.REJECTED),
        ("oak", 6, "error: Server error: HTTP 429 Too Many Requests: no\n", ClientClaim.UNREPORTED),
        ("oak", 5, "error: The remote branch has commits this clone doesn't have.\n", ClientClaim.REJECTED),
        ("oak", 6, "error: the publication's outcome is unconfirmed\n", ClientClaim.UNKNOWN),
    ],
)
def test_a_claim_is_read_from_exit_status_and_words(
    make_result: MakeResult, name: str, returncode: int, stderr: str, claim: ClientClaim
) -> None:
    assert new(name).claim(make_result(returncode, stderr=stderr)) is claim


def test_an_oak_error_document_on_standard_output_claims_that_the_outcome_is_unknown(make_result: MakeResult) -> None:
    document = '{"schema_version":1,"error":{"code":"publication_unconfirmed","message":"no reply"}}'
    assert new("oak").claim(make_result(6, stdout=document)) is ClientClaim.UNKNOWN


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize(
    "ending",
    [
        {"returncode": -9, "state": ProcessState.EXITED},
        {"returncode": 0, "timed_out": True},
        {"returncode": None, "state": ProcessState.SPAWN_FAILURE},
    ],
)
def test_a_client_that_did_not_live_to_its_own_end_claims_nothing(
    make_result: MakeResult, name: str, ending: dict[str, object]
) -> None:
    assert new(name).claim(make_result(**ending)) is ClientClaim.NONE


@pytest.mark.parametrize(
    ("stdout", "stderr", "reason"),
    [
        (ROUND_TRIP, "", ""),
        ("Push done, wire bytes sent: 0\n", "cannot connect to host 127.0.0.1:1\n", "cannot connect"),
        (ROUND_TRIP, "server says: 503 no\n", "503"),
        (ROUND_TRIP + "Error: login failed\n", "", "Error: login failed"),
        ("Push done, wire bytes sent: 0\n", "", "no round trip"),
    ],
)
def test_a_fossil_push_that_ends_with_0_has_failed_when_its_words_say_so(
    make_result: MakeResult, stdout: str, stderr: str, reason: str
) -> None:
    belied = new("fossil").belied(Motion.PUBLISH, make_result(0, stdout, stderr))
    assert (reason in belied) if reason else belied == ""


def test_only_a_push_of_fossil_is_doubted(make_result: MakeResult) -> None:
    assert new("fossil").belied(Motion.SNAPSHOT, make_result(0, "New_Version: a\n", "a warning\n")) == ""


def test_an_oak_description_that_stayed_at_home_has_failed(make_result: MakeResult) -> None:
    said = "warning: Saved locally but couldn't sync to server: HTTP error: error sending request\n"
    oak = new("oak")
    assert "couldn't sync" in oak.belied(Motion.DESCRIBE, make_result(0, "Updated description\n", said))
    assert oak.belied(Motion.DESCRIBE, make_result(0, "Updated description\n", "")) == ""
    damaged = "warning: Could not check the remote: Invalid hash: chunk a does not match content hash b\n"
    assert "Invalid hash" in oak.belied(Motion.ACQUIRE, make_result(0, "", damaged))


@pytest.mark.parametrize("name", ["git", "hg", "jj"])
def test_git_and_hg_and_jj_are_believed(make_result: MakeResult, name: str) -> None:
    assert new(name).belied(Motion.PUBLISH, make_result(0, "", "warning: anything\n")) == ""


@pytest.mark.parametrize(
    ("name", "stdout", "head"),
    [
        ("git", "a" * 40 + "\trefs/heads/b\n", "a" * 40),
        ("git", "", None),
        ("hg", '[\n {\n  "id": "' + "b" * 40 + '",\n  "node": "' + "b" * 40 + '"\n }\n]\n', "b" * 40),
        ("hg", "[", None),
        ("hg", '[{"node": "' + "0" * 40 + '"}]', None),
        ("hg", '{"node": 1}', None),
        ("fossil", "c" * 64 + " *LEAF* \n" + "d" * 64 + " *FORK* \n+++ end of timeline (2) +++\n", "c" * 40),
        ("fossil", "e" * 64 + " *MERGE* *LEAF* \n" + "c" * 64 + " *LEAF* \n", "e" * 40),
        ("fossil", "+++ end of timeline (0) +++\n", None),
        ("oak", '{"branch":"b","head":"e","current_branch_pushed_head":"f"}', "f"),
        ("oak", '{"branch":"b","head":"e"}', None),
        ("oak", "[]", None),
        ("oak", "not json", None),
    ],
)
def test_the_published_head_is_read_from_what_reconciling_printed(
    make_result: MakeResult,
    make_place: Callable[[Subject, Transport], Place],
    name: str,
    stdout: str,
    head: str | None,
) -> None:
    subject = new(name)
    place = make_place(subject, Transport.HTTP)
    assert subject.reconcile(place)
    assert subject.reconciled_head(place, make_result(0, stdout)) == head


def test_a_fork_of_fossil_is_asked_for_the_leaf_that_the_client_published(
    make_result: MakeResult, make_place: Callable[[Subject, Transport], Place]
) -> None:
    fossil = new("fossil")
    place = make_place(fossil, Transport.HTTP)
    told = make_result(0, f"{'e' * 64} *LEAF* \n{'c' * 64} *LEAF* \n{'d' * 64} *FORK* \n")
    assert fossil.reconciled_head(place, told) == "e" * 40
    assert fossil.reconciled_head(replace(place, published="c" * 40), told) == "c" * 40
    assert fossil.reconciled_head(replace(place, published="d" * 40), told) == "e" * 40  # it is no leaf any more


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_tool_that_ended_by_itself_and_left_something_that_was_killed_has_claimed(
    make_result: MakeResult, name: str
) -> None:
    left = new(name).claim(make_result(128, stderr="the end\n", state=ProcessState.FORCED_KILL))
    assert left is ClientClaim.UNREPORTED
    assert new(name).claim(make_result(-9, state=ProcessState.FORCED_KILL)) is ClientClaim.NONE
    late = make_result(128, state=ProcessState.FORCED_KILL, timed_out=True)
    assert new(name).claim(late) is ClientClaim.NONE
