"""Whole trials of every subject over every transport that it has."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.loop.trial import run_loop_trial
from fairtrial.model.loop import Transport

CELLS = [
    *(
        pytest.param("git", transport, marks=pytest.mark.needs("git"), id=f"git-{transport}")
        for transport in (Transport.NATIVE, Transport.SSH)
    ),
    *(
        pytest.param(name, transport, marks=pytest.mark.needs(name), id=f"{name}-{transport}")
        for name in ("hg", "fossil")
        for transport in (Transport.FILE, Transport.HTTP, Transport.NATIVE)
    ),
    *(pytest.param(name, Transport.SSH, marks=pytest.mark.needs(name), id=f"{name}-ssh") for name in ("hg", "fossil")),
    *(
        pytest.param("oak", transport, marks=pytest.mark.needs("oak"), id=f"oak-{transport}")
        for transport in (Transport.HTTP, Transport.NATIVE)
    ),
    *(
        pytest.param("jj", transport, marks=pytest.mark.needs("jj", "git"), id=f"jj-{transport}")
        for transport in (Transport.FILE, Transport.HTTP, Transport.NATIVE, Transport.SSH)
    ),
]
# operation: (rows below it or beside it) of one phase, in order, for a warm and for a fresh acquisition
WARM = {
    "git": ["acquire"],
    "hg": ["acquire.share", "acquire.update", "branch"],
    "fossil": ["acquire"],
    "oak": ["acquire"],
    "jj": ["acquire", "branch"],
}
FRESH = {name: ["acquire", "branch"] for name in ("git", "hg", "jj")} | {"fossil": ["acquire"], "oak": ["acquire"]}
SNAPSHOT = {"git": [".add", ".commit"], "hg": [""], "fossil": [".add", ".commit"], "oak": [""], "jj": [""]}
DESCRIBE = {"oak": ["describe"]}
END = {
    "git": [""],
    "hg": [".remove"],
    "fossil": [".close", ".remove"],
    "oak": [".remove"],
    "jj": [".forget", ".remove"],
}


def phase_of_task_loop(name: str, phase: str) -> list[str]:
    described = DESCRIBE.get(name, []) if phase == "task" else []
    snapshot = [f"snapshot{part}" for part in SNAPSHOT[name]]
    end = [f"end{part}" for part in END[name]]
    return [f"{phase}.{step}" for step in [*WARM[name], "edit", *snapshot, "publish", *described, *end]]


def phase_of_baseline(name: str, phase: str) -> list[str]:
    acquire = FRESH[name] if phase == "cold" else WARM[name]
    checkpoint = [f"checkpoint{part}" for part in SNAPSHOT[name]]
    steps = [*acquire, "inspect", "edit", *checkpoint, "publish", "ci.observe", "review_handoff"]
    return [f"{phase}.{step}" for step in steps]


@pytest.mark.parametrize(("name", "transport"), CELLS)
def test_a_task_loop_publishes_both_payloads(
    make_trial: Callable[..., object], name: str, transport: Transport
) -> None:
    record = run_loop_trial(*make_trial(name, transport))
    expected = [*phase_of_task_loop(name, "task"), *phase_of_task_loop(name, "followup"), "task_loop.total"]
    assert [row["operation"] for row in record.rows] == expected, record.rows[-1]
    total = record.rows[-1]
    assert total["returncode"] == 0, total
    assert total["oracle_payload_on_remote_branch"] is True
    assert total["coverage_complete"] is True
    assert total["network_bytes"] is None or total["network_bytes"] > 1000
    assert (total["network_bytes"] is not None) is (transport is not Transport.FILE)


@pytest.mark.parametrize(("name", "transport"), CELLS)
def test_a_cold_and_a_warm_task_publish_both_payloads(
    make_trial: Callable[..., object], name: str, transport: Transport
) -> None:
    record = run_loop_trial(*make_trial(name, transport, "agent_task_baseline_v1"))
    cleanup = [f"cleanup.warm{part}" for part in END[name]]
    expected = [
        "setup.remote_container",
        "setup.remote_seed",
        *phase_of_baseline(name, "cold"),
        *phase_of_baseline(name, "warm"),
        *cleanup,
        "cleanup.cold",
        *(["comparator.partial_clone"] if name in {"git", "jj"} else []),
        "agent_task.total",
    ]
    assert [row["operation"] for row in record.rows] == expected, record.rows[-1]
    total = record.rows[-1]
    assert total["returncode"] == 0, total
    assert total["oracle_payload_on_remote_branch"] is True
    handoff = next(row for row in record.rows if row["operation"] == "cold.review_handoff")
    assert handoff["output_characters"] > 0


@pytest.mark.parametrize(("name", "transport"), CELLS)
def test_commands_are_shown_alike_on_every_machine(
    make_trial: Callable[..., object], name: str, transport: Transport, tmp_path: object
) -> None:
    rows = run_loop_trial(*make_trial(name, transport)).rows
    shown = json.dumps([row["command"] for row in rows])
    assert str(tmp_path) not in shown
    assert all(row["command"][0] == name for row in rows if row.get("step_kind") == "vcs")
    ports = {word.partition("/")[0] for word in shown.split("127.0.0.1:")[1:]}
    assert {port.strip('"], ')[:4] for port in ports} <= {"8080"}


# By subject: variables of the user, and commands that they and the user's files break, or that tell of them.
HOSTILE = {
    "git": ({"GIT_CONFIG_GLOBAL": "{home}/.gitconfig", "GIT_DIR": "/nonexistent"}, (("init", "-q"),)),
    "hg": ({"HGRCPATH": "{home}/.hgrc"}, (("init",),)),
    "fossil": ({"FOSSIL_HOME": "{home}", "FOSSIL_USER": "intruder", "USER": "intruder"}, (("new", "new.fossil"),)),
    "oak": (
        {"OAK_AUTHOR": "intruder", "OAK_REMOTE": "http://127.0.0.1:1", "OAK_REPO": "no/where"},
        (("init",), ("branch", "--show-current")),
    ),
    "jj": ({"JJ_CONFIG": "{home}/.config/jj/config.toml"}, (("git", "init"),)),
}
USERS_FILES = (".gitconfig", ".hgrc", ".fossil", ".config/jj/config.toml", ".oak/credentials", ".oak/config.toml")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.needs(*{name, "git"})) for name in HOSTILE])
def test_no_configuration_of_the_user_reaches_the_subject(
    make_trial: Callable[..., object], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, (variables, telling) = tmp_path / "home", HOSTILE[name]
    for each in USERS_FILES:
        (home / each).parent.mkdir(parents=True, exist_ok=True)
        (home / each).write_text("this is no [configuration\n")
    spec, subject = make_trial(name, Transport.HTTP)  # type: ignore[misc]
    for variable, value in ({"HOME": "{home}", "XDG_CONFIG_HOME": "{home}/.config"} | variables).items():
        monkeypatch.setenv(variable, value.format(home=home))
    new = home / "new"
    new.mkdir()
    for words in telling:
        last = subprocess.run([spec.loop.variant.binary, *words], cwd=new, capture_output=True, check=False)
    assert last.returncode != 0 or b"intruder" in last.stdout, last  # or the rest would show nothing
    rows = run_loop_trial(spec, subject).rows
    assert rows[-1]["returncode"] == 0, rows[-1]
    assert "intruder" not in json.dumps(rows)
