"""mini-swe-agent, without its terminal (`python -m minisweagent`).

Facts it stands on (2.4.6, see docs/reference/agents/mini-swe-agent.md): it speaks Chat Completions by litellm and
does not stream; its one tool is `bash`; it prints nothing for programs to read, so its trajectory is printed after it
by the shell that starts it, without `raw_output`; each assistant message of that holds its reply's usage, and there is
no total; a model that litellm cannot price costs 0.0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from fairtrial.agents.events import Events, cost_of, count_of, member_of, objects_of, shortened, text_of, usage_of
from fairtrial.agents.installed import asked_version, bind_beside_system, found, locate, missing
from fairtrial.agents.sessions import CONFIG_ROOT, base_environment, json_file, refuse_impossible, withheld_tools
from fairtrial.model.agent import (
    AGENT_ROOT,
    AgentProbe,
    Installation,
    Report,
    SessionPlan,
    SessionRequest,
    SkillProof,
    Tool,
    ToolControl,
)
from fairtrial.model.usage import TokenUsage, sum_usage

__all__ = ["MiniSweAgent"]

CONFIG: Final = f"{CONFIG_ROOT}/session.yaml"  # which is JSON; another suffix would be replaced by this one
DEFAULTS: Final = "lib/python3*/site-packages/minisweagent/config/mini.yaml"
TRIES: Final = "3"
SUBMITTED: Final = "Submitted"
ONE_SHELL: Final = "its one tool is bash"
TELL_VERSION: Final = "import importlib.metadata as m; print(m.version('mini-swe-agent'))"
# The trajectory is written with line breaks; a line is what is read here. It holds each command's whole output besides
# what of it the model saw, and what the last one submitted three times, which no model sees: a line with that may be
# longer than any that is read. All that the agent itself prints goes to standard error.
SHORTEN: Final = """
import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    trajectory = json.load(file)
ends = [trajectory.get("info")]
for message in trajectory.get("messages", ()):
    if isinstance(message.get("extra"), dict):
        message["extra"].pop("raw_output", None)
    if message.get("role") == "exit":
        ends += message, message.get("extra")
for end in ends:
    for name in {"content", "submission"} & {*(end or ())}:
        if isinstance(end[name], str):
            end[name] = end[name][:4096]
print(json.dumps(trajectory))
"""
PRINT_TRAJECTORY: Final = (
    'shorten=$1 trajectory=$2; shift 2; "$@" >&2; code=$?; "$1" -I -c "$shorten" "$trajectory"; exit "$code"'
)


class MiniSweAgent:
    """The `mini` of the distribution `mini-swe-agent`, in a virtual environment of its own."""

    dialect: ClassVar[str | None] = "openai-chat"
    tested_version: ClassVar[str | None] = "2.4.6"
    install: ClassVar[str] = "pipx install mini-swe-agent==2.4.6"
    skills: ClassVar[SkillProof] = SkillProof.PROMPT
    skills_directory: ClassVar[str | None] = None
    skills_besides: ClassVar[tuple[str, ...]] = ()
    tools: ClassVar[Mapping[Tool, ToolControl]] = {
        Tool.READ: ToolControl(names=("bash",), obstacle=ONE_SHELL),
        Tool.SEARCH: ToolControl(names=("bash",), obstacle=ONE_SHELL),
        Tool.EDIT: ToolControl(names=("bash",), obstacle=ONE_SHELL),
        Tool.SHELL: ToolControl(names=("bash",), obstacle=ONE_SHELL),
        Tool.SKILL: ToolControl(),
        Tool.SUBAGENT: ToolControl(),
        Tool.WEB: ToolControl(),
    }
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high", "xhigh")
    speaks_mcp: ClassVar[bool] = False

    def probe(self) -> AgentProbe:
        """Find `mini`, the virtual environment that it belongs to, and the Python below that."""
        script = locate("mini")
        python = None if script is None else _environment_python(script)
        if script is None or python is None:
            return missing("no program 'mini' on PATH that belongs to a virtual environment", self.install)
        version = asked_version([str(python), "-I", "-c", TELL_VERSION])
        if version is None:
            return missing(f"{python} knows no mini-swe-agent", self.install)
        root = python.parent.parent.resolve()
        defaults = next(root.glob(DEFAULTS), None)
        if defaults is None:
            return missing(f"{root} has no {DEFAULTS}", self.install)
        base = _base_of(root)
        binds = (*bind_beside_system(root, AGENT_ROOT), *(() if base is None else bind_beside_system(base)))
        # A bare `mini.yaml` would be looked for in the repository first.
        argv = (
            f"{AGENT_ROOT}/bin/{python.name}",
            "-I",
            "-m",
            "minisweagent",
            "-c",
            f"{AGENT_ROOT}/{defaults.relative_to(root)}",
        )
        installation = Installation(argv=argv, binds=binds)
        return found(script, version, str(self.tested_version), installation)

    def session(self, request: SessionRequest, installation: Installation) -> SessionPlan:
        """One session; the prompt, with the text of each skill, stands in a configuration file."""
        refuse_impossible(self, request)
        trajectory = f"{request.home}/trajectory.json"
        command = (*installation.argv, "-c", CONFIG, "-y", "--exit-immediately", "-o", trajectory)
        return SessionPlan(
            argv=("/bin/sh", "-c", PRINT_TRAJECTORY, "sh", SHORTEN, trajectory, *command),
            env=base_environment(request, installation)
            | {
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": TRIES,
                "MSWEA_SILENT_STARTUP": "1",
                "OPENAI_API_KEY": request.token,
            },
            files=(json_file(CONFIG, _config(request)),),
            binds=installation.binds,
            cwd=request.workspace,
        )

    def read_report(self, lines: Iterable[bytes]) -> Report:
        """One object: the trajectory."""
        events = Events(lines)
        trajectory: object = None
        for event in events:
            if trajectory is not None:
                events.note("more than one trajectory")
            trajectory = event
        ending = text_of(trajectory, "info", "exit_status")
        calls: Counter[str] = Counter()
        usages: list[TokenUsage] = []
        said = final = None
        for message in objects_of(trajectory, "messages"):
            if message.get("role") == "assistant":
                final = text_of(message, "content")
                calls["bash"] += len(objects_of(message, "extra", "actions"))
                usages.append(_claimed_usage(member_of(message, "extra", "response", "usage")))
            elif message.get("role") == "exit":
                said = text_of(message, "content")
        is_error = None if ending is None else ending != SUBMITTED
        return Report(
            ended=ending is not None,
            problem=events.problem,
            is_error=is_error,
            error_text=shortened(said) if is_error and said else None,
            ending=ending,
            usage=sum_usage(usages) if usages else None,
            # Zero is what it says of a model whose price it does not know.
            cost_usd=cost_of(trajectory, "info", "model_stats", "instance_cost") or None,
            turns=count_of(trajectory, "info", "model_stats", "api_calls"),
            tool_calls=dict(calls) if trajectory is not None else None,
            final_text=final,
        )


def _environment_python(script: Path) -> Path | None:
    """The interpreter that the script names in its first line, if it is that of a virtual environment."""
    with script.open("rb") as file:
        first = file.readline(4096).decode("utf-8", "replace").strip()
    python = Path(first.removeprefix("#!").strip())
    return python if first.startswith("#!") and (python.parent.parent / "pyvenv.cfg").is_file() else None


def _base_of(root: Path) -> Path | None:
    """The installation below a virtual environment; None when it is the system's."""
    for line in (root / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home":
            return Path(value.strip()).resolve().parent
    return None


def _config(request: SessionRequest) -> dict[str, object]:
    return {
        "run": {"task": _prompt(request)},
        "agent": {"cost_limit": 0.0},  # budgets are the gateway's
        "model": {
            "model_name": f"openai/{request.model}",
            "model_kwargs": {"api_base": f"{request.endpoint}/v1", "max_retries": 0, **_effort(request)},
        },
    }


def _effort(request: SessionRequest) -> dict[str, object]:
    """The effort as litellm takes it, also for models of which it does not know that they do."""
    if request.effort is None:
        return {}
    return {"reasoning_effort": request.effort, "allowed_openai_params": ["reasoning_effort"]}


def _prompt(request: SessionRequest) -> str:
    """The prompt, and below it every text file of every skill: there is no other way to give this agent one."""
    parts = [request.prompt]
    for skill in () if Tool.SKILL in withheld_tools(request) else request.skills:
        for path, content in sorted(skill.files.items(), key=lambda item: (item[0] != "SKILL.md", item[0])):
            parts.append(f'<skill name="{skill.name}" file="{path}">\n{content.decode("utf-8", "replace")}\n</skill>')
    return "\n\n".join(parts)


def _claimed_usage(usage: object) -> TokenUsage:
    cached = member_of(usage, "prompt_tokens_details", "cached_tokens")
    return usage_of(
        total_input=count_of(usage, "prompt_tokens"),
        cache_read=0 if cached is None and usage is not None else count_of({"n": cached}, "n"),
        output=count_of(usage, "completion_tokens"),
        reasoning=count_of(usage, "completion_tokens_details", "reasoning_tokens"),
    )
