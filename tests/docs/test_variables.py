"""`variables.md` against every place where a variable is read or set."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.host.janitor import SWEEP_VARIABLE
from fairtrial.loop.scenarios import SCENARIOS
from fairtrial.loop.stage import SERVER_ENVIRONMENT, open_stage
from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import LoopTask, TrialSpec
from fairtrial.subjects.git import Git
from fairtrial.sweep.bench_sweep import PROVIDERS
from fairtrial.sweep.execute import worker_environment

ReadTable = Callable[..., list[dict[str, str]]]
Names = Callable[[str], list[str]]

PAGE = "variables.md"
READ = re.compile(r'environ(?:\.get\(|\.pop\(|\[)\s*"([A-Z_]+)"')
VARIABLE = re.compile(r"\bFAIRTRIAL_[A-Z]+(?:_[A-Z]+)*\b")


def sources(clone: Path) -> Iterator[Path]:
    yield from (clone / "src").rglob("*.py")
    yield from (clone / name for name in ("tests/conftest.py", "Makefile", ".ci/run", "requirements/setup"))


def told_names(read_table: ReadTable, heading: str) -> set[str]:
    return {line["variable"].strip("`") for line in read_table(PAGE, heading)}


def line_of(read_table: ReadTable, process: str) -> str:
    (line,) = (line for line in read_table(PAGE, "Set for others") if line["process"] == process)
    return line["variables"]


def test_each_variable_of_ours_is_in_the_reference_and_none_that_is_not_used(
    clone: Path, read_table: ReadTable
) -> None:
    used = {name for path in sources(clone) for name in VARIABLE.findall(path.read_text())}
    assert told_names(read_table, "Of fairtrial") == used
    assert SWEEP_VARIABLE in used


def test_each_variable_that_the_code_names_beside_the_environment_is_in_the_reference(
    clone: Path, read_table: ReadTable
) -> None:
    ours = re.compile("FAIRTRIAL_")
    program, payload = set[str](), set[str]()
    for path in (clone / "src").rglob("*.py"):
        into = payload if path.parent.name == "payload" else program
        into |= {name for name in READ.findall(path.read_text()) if not ours.match(name)}
    assert program
    assert program <= told_names(read_table, "Read by the program")
    assert payload == told_names(read_table, "Inside a sandbox")


def test_what_a_worker_is_given_is_in_the_reference(
    read_table: ReadTable, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_names(read_table, "Read by the program")
    for name in told:
        monkeypatch.setenv(name, "x")
    given = worker_environment("s", ())
    passed_on = {
        line["variable"].strip("`")
        for line in read_table(PAGE, "Read by the program")
        if "assed on to workers" in line["meaning"]
    }
    set_anew = {name.partition("=")[0] for name in names(line_of(read_table, "a worker"))}
    assert given.keys() == passed_on | set_anew


def test_the_variables_of_the_providers_keys_are_in_the_reference(read_table: ReadTable) -> None:
    assert {variable for _, variable in PROVIDERS.values()} <= told_names(read_table, "Read by the program")


def test_what_the_server_of_a_loopback_transport_is_given_is_in_the_reference(
    read_table: ReadTable, names: Names
) -> None:
    told = {name.partition("=")[0] for name in names(line_of(read_table, "the server of a loopback transport"))}
    assert told == SERVER_ENVIRONMENT.keys() | {SWEEP_VARIABLE}


def test_what_git_is_given_is_in_the_reference(tmp_path: Path, read_table: ReadTable, names: Names) -> None:
    variant = Variant(name="git", subject="git", label="git")
    with open_stage(spec_of(variant, tmp_path), SCENARIOS["task_loop"], Git(variant)) as stage:
        given = stage.environment
    generic = {re.sub(r"^(GIT_CONFIG_(?:KEY|VALUE))_\d+$", r"\1_n", name) for name in given}
    told = dict(name.partition("=")[::2] for name in names(line_of(read_table, "git under test")))
    assert told.keys() == generic
    assert all(given[name] == value for name, value in told.items() if value)


def spec_of(variant: Variant, scratch: Path) -> TrialSpec:
    """A trial whose stage needs neither a program nor a server."""
    task = LoopTask(
        scenario="task_loop",
        variant=variant,
        subject_kind="git",
        transport=Transport.FILE,
        run=0,
        block="task_loop/file/0",
        position_in_block=0,
        block_order=("git",),
        null_control=False,
        skip_reason=None,
        admitted_output_characters=0,
        n_seed_files=0,
        hosted_remote=None,
        credential_env=(),
    )
    return TrialSpec(
        sweep="s",
        key="k",
        attempt=1,
        plan_index=0,
        sweep_pass=0,
        results=str(scratch),
        scratch=str(scratch),
        metadata={},
        loop=task,
    )


def test_each_variable_of_make_is_used(clone: Path, read_table: ReadTable) -> None:
    text = (clone / "Makefile").read_text() + (clone / "requirements" / "setup").read_text()
    for name in told_names(read_table, "Read by `make`"):
        assert re.search(rf"\$[({{]?{name}\b", text), name
