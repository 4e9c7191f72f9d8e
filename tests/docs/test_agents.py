"""The pages of the agents against the agents."""

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fairtrial.agents.sessions import base_environment
from fairtrial.model.agent import Installation, SessionRequest, SkillProof, Tool
from fairtrial.plugins import load_plugin
from fairtrial.protocols import Agent

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

INDEX = "agents/index.md"
INSTALLATION = Installation(argv=("program",))
REQUEST = SessionRequest(
    prompt="p",
    model="m",
    endpoint="http://127.0.0.1:1",
    token="t",  # noqa: S106 - of nothing
    timeout_s=1.0,
    patch=b"p",
    tools=frozenset(Tool),
)
NAMES = sorted(point.name for point in entry_points(group="fairtrial.agents") if point.value.startswith("fairtrial."))
WITH_MODEL = [name for name in NAMES if name not in {"nop", "reference"}]


def agent_of(name: str) -> Agent:
    agent: Agent = load_plugin("fairtrial.agents", name).target()
    return agent


def test_every_agent_is_in_the_list_as_it_is(read_table: ReadTable, names: Names) -> None:
    table = {names(line["agent"])[0]: line for line in read_table(INDEX, "Agents")}
    assert sorted(table) == NAMES
    for name, line in table.items():
        agent = agent_of(name)
        assert names(line["agent"]) == [name]
        assert f"]({name}.md)" in line["agent"]
        assert line["speaks"].strip("`") == str(agent.dialect).replace("None", "none")
        assert line["tested"] == str(agent.tested_version).replace("None", "none")
        assert names(line["skills"]) == [agent.skills]
        assert line["MCP"] == ("yes" if agent.speaks_mcp else "no")
        assert tuple(names(line["efforts"])) == agent.efforts


def test_every_proof_is_explained(read_table: ReadTable) -> None:
    told = [line["proof"].strip("`") for line in read_table(INDEX, "Proof that a skill was used")]
    assert told == list(SkillProof)


def test_the_variables_of_every_session_are_told(reference: Path, names: Names) -> None:
    text = (reference / INDEX).read_text()
    told = names(re.findall(r"built from nothing: (.*?), and the agent's own", text, re.DOTALL)[0])
    assert told == sorted(base_environment(REQUEST, INSTALLATION))


def test_what_to_believe_is_told_of_every_agent_with_a_model(read_table: ReadTable, names: Names) -> None:
    assert [names(line["agent"])[0] for line in read_table(INDEX, "What to believe")] == WITH_MODEL


@pytest.mark.parametrize("name", NAMES)
def test_a_page_tells_how_its_agent_is_installed_and_how_it_ends(
    name: str, reference: Path, read_table: ReadTable
) -> None:
    page, agent = f"agents/{name}.md", agent_of(name)
    text = " ".join((reference / page).read_text().split())
    assert f"Install: `{agent.install}`" in text
    assert agent.dialect is None or name == "bash-agent" or str(agent.tested_version) in text.split("Install:")[0]
    codes = [line["code"] for line in read_table(page, "Exit codes")]
    assert codes == sorted(codes, key=int)


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_page_tells_its_agents_tools(name: str, read_table: ReadTable, names: Names) -> None:
    told = {
        line["kind"].strip("`"): (tuple(names(line["names"])), line["can be withheld"])
        for line in read_table(f"agents/{name}.md", "Tools")
    }
    tools = agent_of(name).tools
    assert told == {
        tool: (tools[tool].names, f"no: {tools[tool].obstacle}" if tools[tool].obstacle else "yes") for tool in Tool
    }


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_page_tells_its_agents_variables(name: str, read_table: ReadTable, names: Names) -> None:
    told = [variable for line in read_table(f"agents/{name}.md", "Variables") for variable in names(line["variable"])]
    plan = agent_of(name).session(REQUEST, INSTALLATION)
    assert sorted(told) == sorted(set(plan.env) - set(base_environment(REQUEST, INSTALLATION)))


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_page_shows_the_command_line(name: str, reference: Path) -> None:
    shown = re.findall(r"^    (\S.*)$", (reference / "agents" / f"{name}.md").read_text(), re.MULTILINE)[0].split()
    plan = agent_of(name).session(REQUEST, INSTALLATION)
    options = [word for word in plan.argv if re.fullmatch(r"--?[a-z][a-z-]*", word)]
    assert [word for word in shown if re.fullmatch(r"--?[a-z][a-z-]*", word)][-len(options) :] == options or (
        name == "mini-swe-agent" and set(options[1:]) <= set(shown)
    )
