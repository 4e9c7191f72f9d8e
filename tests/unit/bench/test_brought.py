"""What a task and its tree may not have of a context: an index made elsewhere, and a trace where an arm has none."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.bench.arms import Defaults, build_arm, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.brought import refuse_brought, refuse_traces
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.contexts.ctags import Ctags
from fairtrial.contexts.gitnexus import GitNexus
from fairtrial.errors import UsageError
from fairtrial.model.bench import Arm, Asset, Task

pytestmark = pytest.mark.needs("git")
Bind = Callable[..., Task]


@pytest.fixture
def bind(world: Path, blobs: BlobStore, task_text: str, write_tasks: Callable[[str], Path]) -> Bind:
    """Commit one more file to the repository; the task on it."""

    def commit(path: str, *, content: str = "an index", keys: str = "") -> Task:
        repository = world / "repo"
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(content)
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        for words in (("add", "-A"), (*identity, "commit", "-q", "-m", "more")):
            subprocess.run(["git", *words], cwd=repository, check=True)
        document, parsed = read_task_file(write_tasks(task_text.replace("    class:", f"{keys}    class:", 1)))
        return bind_task(document, 0, parsed.tasks[0], blobs)

    return commit


@pytest.fixture
def arms(blobs: BlobStore) -> dict[str, Arm]:
    """An arm with the context, and one without, by their names."""
    defaults = Defaults(agent="bash-agent", model="m-1", context="gitnexus")
    return {name: build_arm(read_arms(None)[name], defaults, blobs) for name in ("baseline", "baseline_nomcp")}


@pytest.mark.parametrize(
    ("source", "target"), [(".gitnexus", ".gitnexus"), ("a", "b/.gitnexusrc"), (".gitnexus/x", "y")]
)
def test_a_task_that_brings_an_index_made_elsewhere_is_refused(bind: Bind, source: str, target: str) -> None:
    """Into every arm's tree, that without a context included."""
    task, brought = bind("a.py"), (Asset(source=source, target=target, digest="d"),)
    for wrong in (replace(task, copies=brought), replace(task, dependencies=brought)):
        with pytest.raises(UsageError, match=r"task mend-add: .*'\.gitnexus(rc)?' belongs to the context gitnexus"):
            refuse_brought("gitnexus", GitNexus.settings, (task, wrong))
    harmless = (replace(brought[0], source="gitnexus", target="g"),)
    refuse_brought("gitnexus", GitNexus.settings, (replace(task, copies=harmless),))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (".gitnexus/lbug", ".gitnexus"),
        ("part/.gitnexus/meta.json", "part/.gitnexus"),
        (".gitnexusignore", ".gitnexusignore"),
        ("sch\u00f6n/.gitnexusrc", "sch\\xf6n/.gitnexusrc"),
    ],
)
def test_a_committed_trace_is_refused_where_an_arm_goes_without_the_context(
    bind: Bind, arms: dict[str, Arm], path: str, place: str
) -> None:
    task = bind(path)
    with pytest.raises(UsageError) as refused:
        refuse_traces("gitnexus", GitNexus(), [task], [*arms.values()])
    assert str(refused.value) == (
        f"task mend-add: its tree has '{place}', which belongs to the context gitnexus, and arm baseline_nomcp goes"
        " without that: take it out of the tree (the task's `hidden`)"
    )
    refuse_traces("gitnexus", GitNexus(), [task], [arms["baseline"]])


def test_a_trace_that_is_hidden_or_belongs_to_no_context_of_the_sweep_does_no_harm(
    bind: Bind, arms: dict[str, Arm]
) -> None:
    refuse_traces("gitnexus", GitNexus(), [bind("gitnexus/notes.md")], [*arms.values()])
    task = bind(".gitnexus/lbug", keys="    hidden: [.gitnexus]\n")
    refuse_traces("gitnexus", GitNexus(), [task], [*arms.values()])
    refuse_traces("ctags", Ctags(), [replace(task, hidden=())], [*arms.values()])


BLOCK = "<!-- gitnexus:start -->\n> Index stale? Run `node .gitnexus/run.cjs analyze` from the project root.\n"


@pytest.mark.parametrize("path", ["AGENTS.md", "part/CLAUDE.md", ".claude/skills/gitnexus-guide/SKILL.md"])
def test_guidance_that_tells_of_a_context_is_a_trace_of_it(bind: Bind, arms: dict[str, Arm], path: str) -> None:
    task = bind(path, content=BLOCK)
    message = f"its tree has '{path}', which tells of the context gitnexus, and arm baseline_nomcp goes without that"
    with pytest.raises(UsageError, match=message):
        refuse_traces("gitnexus", GitNexus(), [task], [*arms.values()])
    refuse_traces("gitnexus", GitNexus(), [replace(task, hidden=(path,))], [*arms.values()])
    refuse_traces("gitnexus", GitNexus(), [task], [arms["baseline"]])


def test_what_agents_do_not_read_unasked_may_speak_of_a_context(bind: Bind, arms: dict[str, Arm]) -> None:
    task = bind("docs/tools.md", content=BLOCK)
    refuse_traces("gitnexus", GitNexus(), [task], [*arms.values()])


SERVERS = '{"mcpServers": {"%s": {"command": "x"}}}'


@pytest.mark.parametrize(
    ("name", "path", "content"),
    [
        ("gitnexus", "CLAUDE.md", "Use mcp__gitnexus__impact before any edit."),
        ("gitnexus", ".claude/settings.json", '{"permissions": {"allow": ["mcp__gitnexus"]}}'),
        ("gitnexus", ".claude/skills/gitnexus-guide/SKILL.md", "Ask the graph."),
        ("gitnexus", ".agents/skills/gitnexus/more/notes.md", "Ask the graph."),
        ("gitnexus", "opencode.jsonc", '{"mcp": {/* ours */ "gitnexus": {"type": "local"}}}'),
        ("ctags", ".mcp.json", SERVERS % "ctags"),
        ("ctags", "opencode.json", '{"mcp": {"ctags": {"type": "local"}}}'),
        ("ctags", ".codex/config.toml", '[mcp_servers.ctags]\ncommand = "x"\n'),
        ("ctags", ".gemini/settings.json", SERVERS % "ctags"),
        ("ctags", "AGENTS.md", "Call `ctags_find_symbol` first."),
        ("ctags", "GEMINI.md", "Call `mcp_ctags_find_symbol` first."),
        ("ctags", "part/AGENTS.md", "Call mcp__ctags.find_symbol first."),
    ],
)
def test_tools_servers_and_skills_of_a_context_are_traces_of_it(
    bind: Bind, arms: dict[str, Arm], name: str, path: str, content: str
) -> None:
    context = {"ctags": Ctags(), "gitnexus": GitNexus()}[name]
    named = [replace(arms["baseline"], context=name), arms["baseline_nomcp"]]
    task = bind(path, content=content)
    with pytest.raises(UsageError, match=f"its tree has '{path}', which tells of the context {name}, and arm"):
        refuse_traces(name, context, [task], named)
    refuse_traces(name, context, [replace(task, hidden=(path,))], named)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("AGENTS.md", "Run ctags -R after a change; find_symbol and ctags_index are functions of ours."),
        ("CLAUDE.md", "Ask mcp__ctags-lsp__find_symbol or mcp__ctagsd__look, or myctags_find_symbol."),
        (".mcp.json", SERVERS % "ctags-lsp"),
        (".mcp.json", '{"mcpServers": {"ours": {"command": "ctags", "env": {"ctags": {}}}}}'),
        ("opencode.jsonc", '{"formatter": {"ctags": {}}} // ours'),
        (".claude/skills/ctagsd/SKILL.md", "Ask the other."),
        (".claude/skills/index/ctags.md", "Run ctags."),
        ("docs/notes.md", "mcp__ctags__find_symbol"),
    ],
)
def test_a_word_that_is_also_the_name_of_a_context_is_no_trace(
    bind: Bind, arms: dict[str, Arm], path: str, content: str
) -> None:
    named = [replace(arms["baseline"], context="ctags"), arms["baseline_nomcp"]]
    refuse_traces("ctags", Ctags(), [bind(path, content=content)], named)
