"""The conformance suite of agents: how a stranger proves a new one, and how ours are proven.

Each case runs a whole trial by the command line, in the real sandbox, behind the real gateway, with a scripted model,
and looks at the row and at what is left. It needs the agent's entry point, its program, git and Bubblewrap, and says by
`NonconformityError` what is not as it must be. With pytest:

    @pytest.mark.parametrize("case", AGENT_CASES, ids=str)
    def test_my_agent_conforms(case: AgentCase, tmp_path: Path) -> None:
        case.check(HANDS, tmp_path)
"""

import base64
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from typing_extensions import override

from fairtrial.bench.session import RELAY
from fairtrial.host.proc import list_pids
from fairtrial.model.agent import SessionRequest, SkillProof
from fairtrial.testing.agent_trials import PROMPT, AgentHands, AgentTrial, AgentTrials, Call, Row, Turn
from fairtrial.workspace.archive import unpack_change

__all__ = ["AGENT_CASES", "AgentCase", "AgentHands", "Call", "NonconformityError"]

GONE_S: Final = 60.0
LOOK_S: Final = 0.1
DOWN: Final = {"kind": "status", "parameter": 500, "times": 0}
REFUSED: Final = {"kind": "status", "parameter": 400, "times": 0}
MEND: Final = "sed -i 's/a - b/a + b/' calc.py"
COMMIT: Final = "git -c user.name=m -c user.email=m@example.invalid commit -qam mended"
BUCKETS: Final = {
    "uncached_input": "input_tokens",
    "cache_write": "cache_creation_input_tokens",
    "cache_read": "cache_read_input_tokens",
    "output": "output_tokens",
}
LEAVE: Final = "setsid -f sleep {mark} >/dev/null 2>&1; nohup sleep {mark} >/dev/null 2>&1 & "
# What the relay started is the agent; the relay is the process that has its own path for an argument.
CRASH: Final = f"""python3 -c '
import os
def read(pid, name):
    try:
        return open(f"/proc/{{pid}}/{{name}}", "rb").read()
    except OSError:
        return b""
pids = [name for name in os.listdir("/proc") if name.isdigit()]
relays = [pid for pid in pids if b"{RELAY}" in read(pid, "cmdline").split(bytes(1))]
for pid in pids:
    if read(pid, "stat").rpartition(b")")[2].split()[1:2] == [relays[0].encode()]:
        os.kill(int(pid), 9)
'"""
LOOK_INSIDE: Final = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
# Without command substitution, which Gemini refuses, and outside the change, which is kept as it is.
TELL: Final = f"seen=${{TMPDIR:-/tmp}}/seen; {LOOK_INSIDE} >$seen; env >>$seen; base64 -w0 $seen >held; cat $seen"
PLANTED: Final = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "SUITE_SECRET",
)


class NonconformityError(AssertionError):
    """What an agent does not do as every agent must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCase:
    """One thing that every agent must do.

    Attributes:
        name: A sentence.
        look: Tries it.
    """

    name: str
    look: Callable[[AgentTrials], None]

    def check(self, hands: AgentHands, directory: Path) -> None:
        """Try it with an agent, in an empty directory.

        Raises:
            NonconformityError: The agent does not do it.
            FairtrialError: It could not be tried: no such plugin, or no git.
        """
        self.look(AgentTrials(hands, directory / "suite"))

    @override
    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _an_edit_lands(trials: AgentTrials) -> None:
    hands, usages = trials.hands, [trials.usage(n) for n in (1, 2, 3, 4)]
    turns: list[Turn] = [
        {"text": "Looking.", "calls": [dict(call) for call in hands.skill] or [hands.run("ls")], "usage": usages[0]},
        {"calls": [dict(call) for call in hands.edit] or [hands.run(MEND)], "usage": usages[1]},
        {"calls": [hands.run(COMMIT)], "usage": usages[2]},
        hands.end(usage=usages[3]),
    ]
    trial = trials.finish(turns, skill=True)
    row, wire = trial.row, cast("Row", trial.row.get("wire") or {})
    _require_ending(trial, None)
    _require(trial, row["resolved"] is True, "the edit did not land")
    _require(trial, row["diff_files"] == 1, f"{row['diff_files']} files were changed, not 1")
    _require_usage(trial, [*usages, *[trials.usage(90)] * hands.n_side_calls])
    _require(trial, row["usage_source"] == "wire", "its usage is not the wire's")
    undisturbed: dict[str, object] = {"unmeasured_requests": 0, "egress_refused": [], "other_models": [], "refused": {}}
    for name, expected in undisturbed.items():
        _require(trial, wire[name] == expected, f"wire.{name} is {wire[name]}, not {expected}")
    _require(trial, row["transcript_missing"] is False, "its transcript is missing")
    if hands.plugin.skills is not SkillProof.NONE:
        _require(trial, row["skill_invoked"] is True, f"its proof '{hands.plugin.skills}' did not prove the skill")
    if hands.plugin.tested_version is not None:
        _require(trial, row["agent_version"] is not None, "it tells no version")
    (reported,) = cast("Sequence[Row]", row["reported_usage"])
    _require(trial, reported["is_error"] is not True, "it says that it failed")


def _a_provider_that_is_down(trials: AgentTrials) -> None:
    trial = trials.finish(_look_then_meet(trials, DOWN))
    _require_ending(trial, "session-error")
    _require_usage(trial, [trials.usage(1), *[trials.usage(90)] * trials.hands.n_side_calls])
    _require(trial, cast("Row", trial.row["wire"])["failed_requests"] != 0, "the wire saw no failed request")
    for reported in cast("Sequence[Row]", trial.row["reported_usage"]):
        _require(trial, reported["is_error"] is not False, "it says that it did not fail")


def _a_refused_request(trials: AgentTrials) -> None:
    trial = trials.finish(_look_then_meet(trials, REFUSED))
    _require_ending(trial, "agent-crash")
    _require_usage(trial, [trials.usage(1), *[trials.usage(90)] * trials.hands.n_side_calls])


def _look_then_meet(trials: AgentTrials, fault: Mapping[str, object]) -> list[Turn]:
    return [
        {"text": "Looking.", "calls": [trials.hands.run("ls")], "usage": trials.usage(1)},
        {"text": "Never.", "usage": trials.usage(2), "fault": fault},
    ]


def _a_crash(trials: AgentTrials) -> None:
    mark = _new_mark()
    crash = trials.hands.run(LEAVE.format(mark=mark) + "touch left; " + CRASH)
    turns = [{"calls": [crash], "usage": trials.usage(1)}, trials.hands.end(usage=trials.usage(2))]
    trial = trials.finish(turns)
    _require_ending(trial, "agent-crash")
    _require(trial, "137" in str(trial.row["error_detail"]), "it was not the kill that ended it")
    _require(trial, _changed(trial).keys() == {b"left"}, "what it had done before is not in its change")
    left = sorted(_showing(mark))
    _require(trial, not left, f"processes {left} outlived it")


def _a_kill(trials: AgentTrials) -> None:
    mark = _new_mark()
    hang = trials.hands.run(LEAVE.format(mark=mark) + f"sleep {mark}")
    turns = [{"calls": [hang], "usage": trials.usage(1)}, trials.hands.end(usage=trials.usage(2))]
    with trials.begin(turns) as sweep:
        while not any(_sleeps(pid, mark) for pid in list_pids()):
            if (code := sweep.wait(LOOK_S)) is not None:
                raise NonconformityError(f"the sweep ended with {code} before the command that hangs had begun")
        sweep.kill()
        deadline_s = time.monotonic() + GONE_S
        while left := sorted(_showing(mark)):
            if time.monotonic() > deadline_s:
                raise NonconformityError(f"processes {left} outlived the kill of the sweep by {GONE_S:g} s")
            time.sleep(LOOK_S)


def _secrets(trials: AgentTrials) -> None:
    planted = {name: f"planted-{secrets.token_hex(12)}" for name in PLANTED}
    turns = [
        {"calls": [trials.hands.run(TELL)], "usage": trials.usage(1)},
        {"calls": [trials.hands.run(MEND)], "usage": trials.usage(2)},
        trials.hands.end(usage=trials.usage(3)),
    ]
    trial = trials.finish(turns, env=planted)
    _require_ending(trial, None)
    seen = base64.b64decode(_changed(trial).get(b"held", b""))
    _require(trial, b"PATH=" in seen, "the command that looks around inside did not run")
    for name, value in planted.items():
        _require(trial, value.encode() not in seen, f"our own variable {name} can be seen inside")
    commands, tokens = seen.splitlines(), _tokens(trials.hands, seen)
    for token in tokens:
        _require(trial, token not in commands, "the session's token stands in an argv")
    _require(trial, not any(PROMPT.encode() in line for line in commands), "the prompt stands in an argv")
    for path in trial.results.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for secret in (*tokens, *(each.encode() for each in planted.values())):
            _require(trial, secret not in data, f"a secret stands in {path.relative_to(trial.results)}")
    for token in tokens:
        _require(trial, token not in trial.said, "the session's token was printed")


def _skills(trials: AgentTrials) -> None:
    agent = trials.hands.plugin
    places = [] if agent.skills_directory is None else [agent.skills_directory, *agent.skills_besides]
    moves = [f"mv -T ~/{each} ~/{each}.away" for place in places for each in (place, place.partition("/")[0])]
    makes = [f"mkdir -p ~/{place}/x && touch ~/{place}/x/SKILL.md && echo {place} >>made" for place in places]
    command = trials.hands.run(f"({'; '.join([*moves, *makes, 'touch tried'])}) 2>/dev/null")
    turns = [{"calls": [command], "usage": trials.usage(1)}, trials.hands.end(usage=trials.usage(2))]
    changed = _changed(trial := trials.finish(turns, skill=True))
    _require(trial, b"tried" in changed, "the command that makes skills did not run")
    made = changed.get(b"made", b"").decode().split()
    _require(trial, not made, f"a session can make skills in its home, in {', '.join(made)}")


def _tokens(hands: AgentHands, seen: bytes) -> set[bytes]:
    """The session's token, as the variables show it that the agent has for it; none where commands cannot see it."""
    agent = hands.plugin()
    installation = agent.probe().installation
    if installation is None:
        raise NonconformityError("its program is gone")
    request = SessionRequest(prompt="p", model="m", endpoint="http://127.0.0.1:1", token="TOKEN", timeout_s=1)  # noqa: S106
    names = [name for name, value in agent.session(request, installation).env.items() if value == request.token]
    lines = [line.partition(b"=") for line in seen.splitlines()]
    return {value for name, _, value in lines if name.decode(errors="replace") in names and value}


AGENT_CASES: Final = (
    AgentCase(name="an edit lands and is counted as the script says", look=_an_edit_lands),
    AgentCase(name="a provider that stays down ends as session-error", look=_a_provider_that_is_down),
    AgentCase(name="a refused request ends as agent-crash", look=_a_refused_request),
    AgentCase(name="a crash ends as agent-crash and leaves nothing running", look=_a_crash),
    AgentCase(name="a kill leaves nothing running", look=_a_kill),
    AgentCase(name="secrets stay out", look=_secrets),
    AgentCase(name="no skill comes to be where it looks for its users", look=_skills),
)
"""What every agent must do, in order."""


def _require(trial: AgentTrial, holds: bool, problem: str) -> None:  # noqa: FBT001 - what it is about
    if not holds:
        said = trial.said[-2000:].decode(errors="replace")
        raise NonconformityError(f"{problem}; error_detail: {trial.row.get('error_detail')}; the sweep said: {said}")


def _require_ending(trial: AgentTrial, kind: str | None) -> None:
    _require(trial, bool(trial.row), "the sweep wrote no row")
    ended = trial.row["error_kind"]
    _require(trial, ended == kind, f"it ended as {ended or 'resolved'}, not as {kind or 'resolved'}")


def _require_usage(trial: AgentTrial, usages: Sequence[Mapping[str, int]]) -> None:
    expected = {in_row: sum(usage[name] for usage in usages) for name, in_row in BUCKETS.items()}
    counted = {name: trial.row[name] for name in expected}
    _require(trial, counted == expected, f"the row counts {counted}, the script says {expected}")


def _changed(trial: AgentTrial) -> dict[bytes, bytes]:
    (path,) = trial.results.glob("trials/*/*/change.tar")
    change, _ = unpack_change(path.read_bytes())
    return {entry.path: entry.content for entry in change.entries}


def _new_mark() -> str:
    """A number of seconds that no other process of this machine sleeps, so that it can be looked for."""
    return str(10**9 + secrets.randbelow(10**12))


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _sleeps(pid: int, mark: str) -> bool:
    return _command_of(pid).split(b"\0")[:2] == [b"sleep", mark.encode()]


def _showing(mark: str) -> Iterator[int]:
    return (pid for pid in list_pids() if mark.encode() in _command_of(pid))
