"""Trials for the conformance suite of agents: a small task, a script for the model, one sweep by the command line."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast

from fairtrial.host.git import git
from fairtrial.host.process import run
from fairtrial.host.running import Running, start
from fairtrial.model.agent import SkillProof
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent

__all__ = ["PROMPT", "SKILL", "AgentHands", "AgentTrial", "AgentTrials", "Call", "Row", "Turn"]

Call: TypeAlias = Mapping[str, object]
Turn: TypeAlias = Mapping[str, object]
Row: TypeAlias = Mapping[str, object]

ARM: Final = "tested"
SKILL: Final = "suite-skill"
BROKEN: Final = "def add(a, b):\n    return a - b\n"
LONGEST_S: Final = 1800.0
SESSION_S: Final = 1200
PROMPT: Final = "Mend add in calc.py, says PROMPT-OF-THE-SUITE."
_SKILL_TEXT: Final = f"---\nname: {SKILL}\ndescription: How add is mended here\n---\n\nTurn the sign around.\n"
_ORACLE: Final = """import unittest


class Hidden(unittest.TestCase):
    def test_add(self):
        import calc

        self.assertEqual(calc.add(2, 3), 5)
"""
_TASK: Final = {
    "id": "mend-add",
    "class": "bug-fix",
    "repo": "repo",
    "prompt": PROMPT,
    "verify": "python3 -c 'import calc'",
    "oracle": {
        "runner": "unittest",
        "command": "discover -s $FAIRTRIAL_ORACLE_ROOT",
        "expect_tests": 1,
        "files": [{"source": "test_hidden.py", "target": "test_hidden.py"}],
    },
}
_IDENTITY: Final = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "suite"), ("EMAIL", "suite@example.invalid"), ("DATE", "2026-01-01T00:00:00Z"))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHands:
    """What a scripted model must know of an agent to work with its tools; calls are those of a script file.

    Attributes:
        agent: Name of the plugin.
        model: A model that the agent takes.
        tool: The tool that runs a command.
        argument: That tool's argument that takes the command.
        more: What else the tool must be given.
        edit: Calls of its own tools that put `a + b` in the place of `a - b` in /workspace/calc.py; none where its one
            tool is a shell.
        skill: Calls by which it uses the skill `suite-skill`; none where its proof needs none.
        last: Calls that end a session; none where a text without a call does.
        n_side_calls: Requests without tools that a session makes besides, such as one for a title.
    """

    agent: str
    model: str
    tool: str
    argument: str
    more: Mapping[str, object] = field(default_factory=dict[str, object])
    edit: Sequence[Call] = ()
    skill: Sequence[Call] = ()
    last: Sequence[Call] = ()
    n_side_calls: int = 0

    def run(self, command: str) -> Call:
        """The call that runs a command."""
        return {"tool": self.tool, "input": {self.argument: command, **self.more}}

    def end(self, **more: object) -> Turn:
        """The turn that ends a session well."""
        return {"text": "Done.", "calls": [dict(call) for call in self.last], **more}

    @property
    def plugin(self) -> type[Agent]:
        """The agent's class.

        Raises:
            UsageError: There is no such plugin.
            HostError: It cannot be loaded.
        """
        return cast("type[Agent]", load_plugin("fairtrial.agents", self.agent).target)


class AgentTrial(NamedTuple):
    """One trial and the sweep that it was.

    Attributes:
        row: Its row; empty when there is none.
        results: The results directory.
        said: What the sweep printed, both streams.
    """

    row: Row
    results: Path
    said: bytes


class AgentTrials:
    """A task in a directory, on which an agent can be tried.

    Attributes:
        hands: The agent's hands.
        root: The directory; empty before.
    """

    def __init__(self, hands: AgentHands, root: Path) -> None:
        self.hands = hands
        self.root = root
        repository = root / "repo"
        repository.mkdir(parents=True)
        (repository / "calc.py").write_text(BROKEN)
        git(["init", "--quiet", "--template=", "--initial-branch=main", "."], cwd=repository)
        git(["add", "--all"], cwd=repository)
        git(["commit", "--quiet", "--no-gpg-sign", "--message=base"], cwd=repository, env=_IDENTITY)
        (root / "test_hidden.py").write_text(_ORACLE)
        (root / SKILL).mkdir()
        (root / SKILL / "SKILL.md").write_text(_SKILL_TEXT)
        (root / "tasks.yaml").write_text(json.dumps({"tasks": [_TASK]}))

    def usage(self, n: int) -> dict[str, int]:
        """A usage that no sum of others hides: its buckets are all different, and different for each number."""
        writes = self.hands.plugin.dialect != "gemini"  # whose cache is written by requests of their own
        counts = {"uncached_input": 1000 + n, "cache_read": 30_000 + 7 * n, "output": 200 + 3 * n}
        return {**counts, "cache_write": 500 + 11 * n if writes else 0}

    def finish(self, turns: Sequence[Turn], *, env: Mapping[str, str] | None = None, skill: bool = False) -> AgentTrial:
        """Run one trial to its end; `env` stands in the harness's own environment besides."""
        argv = self._command(turns, skill=skill)
        result = run(argv, env={**os.environ, **(env or {})}, timeout_s=LONGEST_S, capture_bytes=1 << 20)
        said = result.stdout.head + result.stderr.head
        results = self.root / "results"
        rows = (results / "results.jsonl").read_text().splitlines() if (results / "results.jsonl").exists() else []
        row: Row = json.loads(rows[-1]) if rows else {}
        return AgentTrial(row=row, results=results, said=said)

    def begin(self, turns: Sequence[Turn]) -> Running:
        """Start one trial; leaving its context kills the sweep."""
        return start(self._command(turns, skill=False), env=dict(os.environ))

    def _command(self, turns: Sequence[Turn], *, skill: bool) -> list[str]:
        hands, root = self.hands, self.root
        phase: dict[str, object] = {"prompt": "{task}"}
        arm: dict[str, object] = {"phases": [phase]}
        if skill and hands.plugin.skills is not SkillProof.NONE:
            phase |= {"prompt": "Use the {skill} skill. {task}", "skill": SKILL}
            arm["skills"] = {SKILL: SKILL}
        (root / "arms.yaml").write_text(json.dumps({"arms": {ARM: arm}}))
        side = {"text": "A title", "usage": self.usage(90)}
        agents = [
            {"name": "side", "match": {"tools": "none"}, "turns": [side], "beyond": "repeat"},
            {"name": "main", "turns": [dict(turn) for turn in turns]},
        ]
        (root / "script.yaml").write_text(json.dumps({"schema": "script/1", "agents": agents}))
        words: list[object] = [sys.executable, "-m", "fairtrial", "bench", "--runs", 1, "--timeout", SESSION_S]
        words += ["--tasks", root / "tasks.yaml", "--arms", ARM, "--arms-file", root / "arms.yaml"]
        words += ["--agent", hands.agent, "--model", hands.model, "--script", root / "script.yaml"]
        return [*map(str, words), "--out", str(root / "results")]
