"""Which changes are those of a skill that an arm demands."""

import pytest

from fairtrial.agents.claude_code import ClaudeCode
from fairtrial.agents.codex import Codex
from fairtrial.agents.gemini_cli import GeminiCli
from fairtrial.agents.nop import Nop
from fairtrial.agents.opencode import OpenCode
from fairtrial.bench.trial import read_skill_places, rewritten_skill
from fairtrial.model.bench import Phase
from fairtrial.protocols import Agent
from fairtrial.workspace.change import Change, Entry, Kind

PHASES = (Phase(name="plan", prompt="", skill="acme-plan"), Phase(name="work", prompt="", skill="acme-work"))


def rewritten(agent: type[Agent], *paths: str, phases: tuple[Phase, ...] = PHASES) -> bytes | None:
    entries = tuple(Entry(path=path.encode(), kind=Kind.FILE, existed=True, content=b"x") for path in paths)
    return rewritten_skill(Change(entries=entries), phases, read_skill_places(agent()))


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        (ClaudeCode, ".claude/skills"),
        (Codex, ".codex/skills"),
        (GeminiCli, ".gemini/skills"),
        (OpenCode, ".config/opencode/skills"),
        (Codex, ".claude/skills"),
        (Nop, ".claude/skills"),
        (Codex, ".agents/skills"),
        (GeminiCli, ".agents/skills"),
        (OpenCode, ".opencode/skill"),
    ],
)
def test_a_demanded_skill_is_found_wherever_the_agent_looks(agent: type[Agent], place: str) -> None:
    path = f"{place}/acme-work/more/a.md"
    assert rewritten(agent, "calc.py", path) == path.encode()
    assert rewritten(agent, f"{place}/acme-plan/SKILL.md") is not None, "of another phase"


def test_other_changes_are_no_rewriting() -> None:
    assert rewritten(Codex, ".codex/skills/mine/SKILL.md", ".codex/skills/acme-work-2/SKILL.md", "acme-work/x") is None
    assert rewritten(ClaudeCode, ".codex/skills/acme-work/SKILL.md") is None
    assert rewritten(Codex, ".codex/skills/acme-work/SKILL.md", phases=(Phase(name="work", prompt=""),)) is None
