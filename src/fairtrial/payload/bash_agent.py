"""A small coding agent: a tool loop on the Messages API with a shell and the skills that it finds.

    python3 -I -S bash_agent.py <PROMPT

Works in the current directory until the model makes no more tool calls. Prints one JSON object a line, the last of
type `result`. Runs on the system's Python 3.9 or newer with nothing but the standard library; nobody imports it.

Environment: MODEL, MODEL_ENDPOINT (http://HOST:PORT), MODEL_TOKEN; optionally BASH_AGENT_TOOLS (`bash`, `skill`,
separated by commas; default both) and BASH_AGENT_MAX_TURNS (200). Skills are directories with a SKILL.md below
.claude/skills, of the current directory first, of $HOME second. Exit codes: 0 the model ended by itself, 1 the model
API failed, 2 wrong usage, 3 too many turns.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    Json = dict[str, object]

VERSION = "1"
MAX_TOKENS = 16_000
MAX_TURNS = 200
MAX_TRIES = 6
LONGEST_PAUSE_S = 60.0
REQUEST_S = 600.0
COMMAND_S = 120.0
LONGEST_COMMAND_S = 600.0
SHOWN_BYTES = 30_000
LONGEST_ERROR = 500
DONE, API_FAILED, BAD_USAGE, TOO_MANY_TURNS = 0, 1, 2, 3
BUCKETS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")

SYSTEM = """You are a coding agent. You work in the directory {directory}, a git repository, until the task is done.
Look before you change; run what tests there are; change nothing that the task does not ask for. There is nobody to ask
and no network. When you are done, say in one or two sentences what you did, without a tool call."""

BASH = {
    "name": "Bash",
    "description": "Run a command with bash in the working directory. Each call is a new shell.",
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run."},
            "timeout_s": {"type": "number", "description": f"Seconds; default {COMMAND_S:.0f}, at most 600."},
        },
        "required": ["command"],
    },
}
SKILL = {
    "name": "Skill",
    "description": "Load a skill: instructions for a kind of work. Do so before the work that it is for.",
    "input_schema": {
        "type": "object",
        "properties": {"skill": {"type": "string", "description": "The skill's name."}},
        "required": ["skill"],
    },
}


class ApiError(Exception):
    """The model API did not answer a request, after all tries.

    Attributes:
        status: The last HTTP status; None when there was none.
    """

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def emit(**event: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def as_object(value: object) -> Json:
    """A JSON object; an empty one for anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


class Model:
    """The Messages API at one endpoint.

    Attributes:
        retries: Requests that were repeated.
    """

    def __init__(self, endpoint: str, token: str) -> None:
        self.address = urlsplit(endpoint)
        self.headers = {"x-api-key": token, "anthropic-version": "2023-06-01", "content-type": "application/json"}
        self.retries = 0

    def ask(self, request: Json) -> Json:
        """Send a request until it is answered, at most `MAX_TRIES` times."""
        body = json.dumps(request).encode()
        failure = ApiError("no try", None)
        for n_try in range(1, MAX_TRIES + 1):
            wait_s = min(0.5 * 2 ** (n_try - 1), LONGEST_PAUSE_S)
            try:
                status, told_s, reply = self.post(body)
            except (OSError, http.client.HTTPException) as problem:
                failure = ApiError(f"{type(problem).__name__}: {problem}", None)
            else:
                if status == 200:
                    return self.message_in(reply)
                said = reply[:LONGEST_ERROR].decode("utf-8", "replace")
                failure = ApiError(f"HTTP {status}: {said}", status)
                if status != 429 and status < 500:
                    raise failure
                wait_s = max(wait_s, told_s)
            if n_try < MAX_TRIES:
                self.retries += 1
                emit(type="retry", status=failure.status, wait_s=wait_s)
                time.sleep(wait_s)
        raise failure

    def post(self, body: bytes) -> tuple[int, float, bytes]:
        """One try: the status, how long the server asks to wait, and the body."""
        connection = http.client.HTTPConnection(str(self.address.hostname), self.address.port, timeout=REQUEST_S)
        try:
            connection.request("POST", "/v1/messages", body, self.headers)
            reply = connection.getresponse()
            try:
                told_s = min(float(reply.getheader("retry-after", "0")), LONGEST_PAUSE_S)
            except ValueError:
                told_s = 0.0  # a date
            return reply.status, told_s, reply.read()
        finally:
            connection.close()

    @staticmethod
    def message_in(reply: bytes) -> Json:
        """The message that a successful reply holds."""
        try:
            message = as_object(json.loads(reply))
        except ValueError as problem:
            raise ApiError(f"the reply is no JSON: {problem}", 200) from problem
        if not isinstance(message.get("content"), list):
            raise ApiError("the reply is no message", 200)
        return message


def find_skills() -> dict[str, Path]:
    """Skills by name; those of the working directory win over those of the home."""
    found: dict[str, Path] = {}
    for root in (Path.cwd(), Path.home()):
        for file in sorted(root.glob(".claude/skills/*/SKILL.md")):
            found.setdefault(file.parent.name, file)
    return found


def description_of(skill: Path) -> str:
    """What a skill says that it is for, in the lines between `---` that begin it."""
    lines = skill.read_text(encoding="utf-8", errors="replace").splitlines()
    if lines[:1] == ["---"]:
        for line in lines[1:]:
            if line.strip() == "---":
                break
            if line.startswith("description:"):
                return line.partition(":")[2].strip().strip("\"'")
    return ""


def run_command(arguments: Json) -> tuple[str, bool]:
    """Run a command; what it printed and its exit code, and whether it failed."""
    command = arguments.get("command")
    if not isinstance(command, str):
        return "no command", True
    limit_s = limit_of(arguments.get("timeout_s"))
    # A file, not a pipe: what the command leaves in the background would hold a pipe open.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                ["/bin/bash", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:  # too long, a NUL, half a character: the model's affair
            return f"cannot be run: {problem}", True
        try:
            code = process.wait(limit_s)
            ending = f"exit code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            ending = f"killed after {limit_s:.0f} s"
        return f"{shown(cast('BinaryIO', output))}\n[{ending}]", code != 0


def limit_of(asked_s: object) -> float:
    """Seconds that a command may take, whatever the model asks for: a number of ours where it makes no sense."""
    if not isinstance(asked_s, (int, float)) or isinstance(asked_s, bool) or not asked_s > 0:
        return COMMAND_S
    return LONGEST_COMMAND_S if asked_s > LONGEST_COMMAND_S else float(asked_s)


def shown(file: BinaryIO) -> str:
    """The beginning and the end of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= SHOWN_BYTES:
        data = file.read()
    else:
        head = file.read(SHOWN_BYTES // 2)
        file.seek(-(SHOWN_BYTES // 2), os.SEEK_END)
        data = head + f"\n[{size - SHOWN_BYTES} bytes left out]\n".encode() + file.read()
    return data.decode("utf-8", "replace")


def load_skill(arguments: Json, skills: dict[str, Path]) -> tuple[str, bool]:
    """The text of a skill, or which there are."""
    name = arguments.get("skill")
    file = skills.get(name) if isinstance(name, str) else None
    if file is None:
        return f"Unknown skill: {name}; known: {', '.join(skills) or 'none'}", True
    text = file.read_text(encoding="utf-8", errors="replace")
    return f"Base directory for this skill: {file.parent}\n\n{text}", False


class Session:
    """One conversation, and what it came to."""

    def __init__(self, model: Model, name: str, tools: set[str], max_turns: int) -> None:
        self.model = model
        self.name = name
        self.max_turns = max_turns
        self.skills = find_skills() if "skill" in tools else {}
        self.tools = [BASH] * ("bash" in tools) + [SKILL] * bool(self.skills)
        self.turns = 0
        self.calls: dict[str, int] = {}
        self.loaded: dict[str, None] = {}
        self.usage: dict[str, int | None] = dict.fromkeys(BUCKETS, 0)
        self.text = ""

    def run(self, prompt: str) -> int:
        """Talk until the model makes no more calls; the exit code."""
        system = SYSTEM.format(directory=Path.cwd())
        if self.skills:
            system += "\n\nSkills:\n" + "\n".join(f"- {n}: {description_of(f)}" for n, f in self.skills.items())
        messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
        while self.turns < self.max_turns:
            request: Json = {"model": self.name, "max_tokens": MAX_TOKENS, "system": system, "messages": messages}
            if self.tools:
                request["tools"] = self.tools
            reply = self.model.ask(request)
            self.turns += 1
            self.add_usage(reply.get("usage"))
            content = [as_object(block) for block in cast("list[object]", reply["content"])]
            self.text = "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
            results = [self.call(block) for block in content if block.get("type") == "tool_use"]
            if not results:
                return DONE
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": "user", "content": results})
        return TOO_MANY_TURNS

    def call(self, block: Json) -> Json:
        """Carry out a tool call; its result as the model gets it."""
        name, arguments = str(block.get("name")), as_object(block.get("input"))
        self.calls[name] = self.calls.get(name, 0) + 1
        if name == "Bash" and BASH in self.tools:
            text, is_error = run_command(arguments)
        elif name == "Skill" and SKILL in self.tools:
            text, is_error = load_skill(arguments, self.skills)
            if not is_error:
                self.loaded[str(arguments["skill"])] = None
        else:
            text, is_error = f"There is no tool {name}", True
        emit(type="tool", name=name, input=arguments, is_error=is_error, output=text[:LONGEST_ERROR])
        return {"type": "tool_result", "tool_use_id": block.get("id"), "content": text, "is_error": is_error}

    def add_usage(self, usage: object) -> None:
        """Add what a reply says it cost; what one does not say is unknown for good."""
        said = as_object(usage)
        for name in BUCKETS:
            count, so_far = said.get(name), self.usage[name]
            self.usage[name] = so_far + count if isinstance(count, int) and so_far is not None else None


def main() -> int:
    """Read the environment and the prompt, run, report."""
    names = [name for name in ("MODEL", "MODEL_ENDPOINT", "MODEL_TOKEN") if not os.environ.get(name)]
    prompt = sys.stdin.read()
    tools = set(os.environ.get("BASH_AGENT_TOOLS", "bash,skill").split(",")) - {""}
    turns = os.environ.get("BASH_AGENT_MAX_TURNS", str(MAX_TURNS))
    if names or not prompt.strip() or tools - {"bash", "skill"} or not turns.isdigit():
        sys.stderr.write(f"bash-agent: missing or wrong: {', '.join(names) or 'prompt, tools or turns'}\n")
        return BAD_USAGE
    model = Model(os.environ["MODEL_ENDPOINT"], os.environ.pop("MODEL_TOKEN"))
    session = Session(model, os.environ["MODEL"], tools, int(turns))
    emit(type="start", version=VERSION, tools=[tool["name"] for tool in session.tools], skills=list(session.skills))
    failure: ApiError | None = None
    try:
        code = session.run(prompt)
    except ApiError as problem:
        code, failure = API_FAILED, problem
    emit(
        type="result",
        ending={DONE: "end", TOO_MANY_TURNS: "max-turns"}.get(code, "api-error"),
        is_error=code != DONE,
        error=str(failure)[:LONGEST_ERROR] if failure else None,
        error_status=failure.status if failure else None,
        turns=session.turns,
        retries=model.retries,
        usage=session.usage,
        tool_calls=session.calls,
        skills=list(session.loaded),
        text=session.text,
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
