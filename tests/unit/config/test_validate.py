from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fairtrial.config.read import read_toml, read_yaml
from fairtrial.config.validate import validate
from fairtrial.errors import ConfigError


class Tools(StrEnum):
    EXPLORE = "explore"
    IMPLEMENT = "implement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    prompt: str
    tools: Tools = Tools.EXPLORE
    effort: Literal["low", "high"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    verify: str
    timeout_s: float = 1.0
    n_runs: Annotated[int, Field(ge=1)] = 1
    paths: tuple[Path, ...] = ()
    phases: list[Phase] = field(default_factory=list[Phase])
    oracle: "Oracle | str | None" = None

    def __post_init__(self) -> None:
        if self.verify == "false":
            message = "verify can never pass"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    tasks: dict[str, Task]


def from_yaml(tmp_path: Path, text: str) -> Tasks:
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    return validate(read_yaml(path), Tasks)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_yaml(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_a_good_file_becomes_frozen_values(tmp_path: Path) -> None:
    text = """\
tasks:
  fix:
    verify: make
    timeout_s: 2
    paths: [/a, b]
    phases: [{prompt: x, tools: implement, effort: high}]
    oracle: {command: test}
  other: {verify: v, oracle: inline}
"""
    assert from_yaml(tmp_path, text) == Tasks(
        tasks={
            "fix": Task(
                verify="make",
                timeout_s=2.0,
                paths=(Path("/a"), Path("b")),
                phases=[Phase(prompt="x", tools=Tools.IMPLEMENT, effort="high")],
                oracle=Oracle(command="test"),
            ),
            "other": Task(verify="v", oracle="inline"),
        }
    )


def test_an_unknown_key_is_named_with_its_place_its_parent_and_the_near_miss(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "tasks:\n  fix-parser:\n    verfy: make\n    verify: make\n")
    assert problem == (
        "tasks.yaml:3:5: unknown key 'verfy' in 'tasks.fix-parser'; did you mean 'verify'? "
        "valid: n_runs, oracle, paths, phases, timeout_s, verify"
    )


def test_an_unknown_key_inside_a_union_and_a_list_gets_the_keys_of_that_place(tmp_path: Path) -> None:
    text = """\
tasks:
  a:
    verify: v
    oracle: {command: c, comand: d}
    phases:
      - prompt: p
        tol: x
"""
    assert problems(tmp_path, text) == [
        "tasks.yaml:4:5: key 'tasks.a.oracle': input should be a valid string, got a mapping",
        "tasks.yaml:4:26: unknown key 'comand' in 'tasks.a.oracle'; did you mean 'command'? valid: command",
        "tasks.yaml:7:9: unknown key 'tol' in 'tasks.a.phases[0]'; did you mean 'tools'? valid: effort, prompt, tools",
    ]


def test_an_unknown_key_at_the_root_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path, "tasks: {}\ntask: {}\n") == [
        "tasks.yaml:2:1: unknown key 'task'; did you mean 'tasks'? valid: tasks"
    ]


def test_an_unknown_choice_lists_the_valid_ones_and_the_near_miss(tmp_path: Path) -> None:
    tools, effort = problems(tmp_path, "tasks: {a: {verify: v, phases: [{prompt: p, tools: implment, effort: hig}]}}\n")
    assert tools == (
        "tasks.yaml:1:45: key 'tasks.a.phases[0].tools' has unknown value 'implment'; did you mean 'implement'? "
        "valid: explore, implement"
    )
    assert effort == (
        "tasks.yaml:1:62: key 'tasks.a.phases[0].effort' has unknown value 'hig'; did you mean 'high'? valid: high, low"
    )


def test_a_missing_key_is_named_at_its_parent(tmp_path: Path) -> None:
    assert problems(tmp_path, "# x\ntasks:\n  a: {n_runs: 1}\n") == [
        "tasks.yaml:3:3: missing key 'verify' in 'tasks.a'"
    ]
    assert problems(tmp_path, "{}\n") == ["tasks.yaml:1:1: missing key 'tasks'"]


def test_every_problem_is_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "tasks:\n  b:\n    verify: 1\n    n_runs: 0\n  a:\n    verify: v\n    timeout_s: '2'\n    n_runs: 1.5\n"
    assert problems(tmp_path, text) == [
        "tasks.yaml:3:5: key 'tasks.b.verify': input should be a valid string, got 1",
        "tasks.yaml:4:5: key 'tasks.b.n_runs': input should be greater than or equal to 1, got 0",
        "tasks.yaml:7:5: key 'tasks.a.timeout_s': input should be a valid number, got '2'",
        "tasks.yaml:8:5: key 'tasks.a.n_runs': input should be a valid integer, got 1.5",
    ]


def test_a_file_with_very_many_problems_shows_some_and_counts_the_rest(tmp_path: Path) -> None:
    lines = problems(tmp_path, "tasks:\n" + "".join(f"  t{i}: {{}}\n" for i in range(50)))
    assert len(lines) == 21
    assert lines[-1] == "tasks.yaml: and 30 more problems"


def test_the_error_carries_the_first_problems_place_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_yaml(tmp_path, "tasks:\n  a: {verify: v, n_runs: x}\n  b: {}\n")
    assert (caught.value.line, caught.value.column, caught.value.key) == (2, 18, "tasks.a.n_runs")


def test_what_a_post_init_refuses_is_a_problem_of_the_file(tmp_path: Path) -> None:
    assert problems(tmp_path, "tasks:\n  a: {verify: 'false'}\n") == [
        "tasks.yaml:2:3: key 'tasks.a': verify can never pass"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tasks.yaml:1:1: input should be an object, got nothing"),
        ("[]", "tasks.yaml:1:1: input should be an object, got a list"),
        ("tasks: [1]", "tasks.yaml:1:1: key 'tasks': input should be an object, got a list"),
        (
            "tasks: {a: {verify: true}}",
            "tasks.yaml:1:13: key 'tasks.a.verify': input should be a valid string, got True",
        ),
    ],
)
def test_the_wrong_kind_of_value_is_said_in_plain_words(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


def test_what_a_file_says_stays_one_short_printable_line_a_problem(tmp_path: Path) -> None:
    (line,) = problems(tmp_path, f'tasks: {{a: {{verify: v, n_runs: "{"x" * 10_000}\\n\\e[31m"}}}}')
    assert line.isprintable()
    assert len(line) < 300


def test_toml_is_validated_alike(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text("[tasks.a]\nverify = 'v'\n[[tasks.a.phases]]\nprompt = 'p'\ntols = 'explore'\n")
    with pytest.raises(
        ConfigError, match=r"tasks.toml:5:1: unknown key 'tols' in 'tasks.a.phases\[0\]'; did you mean 'tools'"
    ):
        validate(read_toml(path), Tasks)


def test_a_collection_of_dataclasses_can_be_the_whole_document(tmp_path: Path) -> None:
    path = tmp_path / "phases.yaml"
    path.write_text("- prompt: a\n- prompt: b\n")
    assert validate(read_yaml(path), list[Phase]) == [Phase(prompt="a"), Phase(prompt="b")]
    path.write_text("- prompt: a\n- promt: b\n")
    with pytest.raises(ConfigError, match=r"phases.yaml:2:3: unknown key 'promt' in '\[1\]'; did you mean 'prompt'"):
        validate(read_yaml(path), list[Phase])
