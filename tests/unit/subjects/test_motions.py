"""Which commands carry out each motion, for every subject: pure, so no tool is needed."""

import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.model.loop import Manner, Motion, Place, Serve, Transport, Variant
from fairtrial.protocols import Subject
from fairtrial.subjects.fossil import Fossil
from fairtrial.subjects.git import Git
from fairtrial.subjects.jujutsu import Jujutsu
from fairtrial.subjects.mercurial import Mercurial
from fairtrial.subjects.oak import Oak

SUBJECTS: dict[str, type[Subject]] = {"git": Git, "hg": Mercurial, "fossil": Fossil, "oak": Oak, "jj": Jujutsu}
MOTIONS = {
    "fresh": (Motion.ACQUIRE, Manner.FRESH),
    "warm": (Motion.ACQUIRE, Manner.WARM),
    "inspect": (Motion.INSPECT, Manner.PLAIN),
    "snapshot": (Motion.SNAPSHOT, Manner.PLAIN),
    "publish": (Motion.PUBLISH, Manner.PLAIN),
    "join": (Motion.JOIN, Manner.PLAIN),
    "merged": (Motion.SNAPSHOT, Manner.MERGED),
    "describe": (Motion.DESCRIBE, Manner.PLAIN),
    "review": (Motion.DESCRIBE, Manner.REVIEW),
    "end": (Motion.END, Manner.PLAIN),
}
# Motion -> the commands, each as DIRECTORY: NAME OF ITS ROW: COMMAND.
EXPECTED: dict[str, dict[str, list[str]]] = {
    "git": {
        "fresh": [
            "/t: p.x: git clone -q -b main http://127.0.0.1:20001/store.git /t/task",
            "/t/task: p.branch: git switch -q -c work/task-0",
        ],
        "warm": ["/t/base: p.x: git worktree add -q /t/task -b work/task-0 origin/main"],
        "inspect": ["/t/task: p.x: git status --porcelain=v1"],
        "snapshot": ["/t/task: p.x.add: git add .", "/t/task: p.x.commit: git commit -q -m 'Note it'"],
        "publish": ["/t/task: p.x: git push -q -u origin work/task-0"],
        "join": ["/t/task: p.x: git pull -q --rebase origin work/task-0"],
        "merged": [
            "/t/task: p.x.add: git add .",
            "/t/task: p.x.continue: git -c core.editor=true rebase --continue",
        ],
        "describe": [],
        "review": ["/t/task: p.x: git show --format=%H%n%s --stat HEAD"],
        "end": ["/t/base: p.x: git worktree remove /t/task"],
    },
    "hg": {
        "fresh": [
            "/t: p.x: hg clone -q -u main http://127.0.0.1:20001/store /t/task",
            "/t/task: p.branch: hg bookmark work/task-0",
        ],
        "warm": [
            "/t: p.x.share: hg share -q -U -B /t/base /t/task",
            "/t/task: p.x.update: hg update -q main",
            "/t/task: p.branch: hg bookmark work/task-0",
        ],
        "inspect": ["/t/task: p.x: hg status -Tjson"],
        "snapshot": ["/t/task: p.x: hg commit -q -A -m 'Note it'"],
        "publish": ["/t/task: p.x: hg push -q -B work/task-0"],
        "join": ["/t/task: p.x.pull: hg pull -q", "/t/task: p.x.merge: hg merge -q work/task-0@default"],
        "merged": ["/t/task: p.x.resolve: hg resolve -q -m", "/t/task: p.x.commit: hg commit -q -m Merge"],
        "describe": [],
        "review": ["/t/task: p.x: hg log -r . --stat -T '{node}\n{desc}\n'"],
        "end": ["/t: p.x.remove: /bin/rm -rf /t/task"],
    },
    "fossil": {
        "fresh": [
            (
                "/t: p.x: fossil clone --save-http-password --workdir /t/task "
                "http://bench:pw@127.0.0.1:20001/store /t/task.fossil"
            )
        ],
        "warm": ["/t: p.x: fossil open /t/base.fossil trunk --nosync --workdir /t/task"],
        "inspect": ["/t/task: p.x: fossil changes --differ"],
        "snapshot": [
            "/t/task: p.x.add: fossil addremove",
            "/t/task: p.x.commit: fossil commit --no-warnings --branch work/task-0 -m 'Note it'",
        ],
        "publish": ["/t/task: p.x: fossil push"],
        "join": ["/t/task: p.x.pull: fossil pull", "/t/task: p.x.merge: fossil merge"],
        "merged": ["/t/task: p.x.commit: fossil commit --no-warnings -m Merge"],
        "describe": [],
        "review": ["/t/task: p.x: fossil timeline current -n 1 -v"],
        "end": ["/t/task: p.x.close: fossil close", "/t: p.x.remove: /bin/rm -rf /t/task"],
    },
    "oak": {
        "fresh": ["/t: p.x: oak clone lane/store /t/task -r http://127.0.0.1:20001"],
        "warm": ["/t: p.x: oak clone lane/store /t/task -r http://127.0.0.1:20001"],
        "inspect": ["/t/task: p.x: oak status --json"],
        "snapshot": ["/t/task: p.x: oak commit"],
        "publish": ["/t/task: p.x: oak push"],
        "join": ["/t/task: p.x: oak pull"],
        "merged": ["/t/task: p.x.commit: oak commit"],
        "describe": ["/t/task: p.x: oak desc 'Note it'"],
        "review": ["/t/task: p.x: oak log -n 1 -v"],
        "end": ["/t: p.x.remove: /bin/rm -rf /t/task"],
    },
    "jj": {
        "fresh": [
            "/t: p.x: jj git clone http://127.0.0.1:20001/store.git /t/task",
            "/t/task: p.branch: jj bookmark create work/task-0",
        ],
        "warm": [
            "/t/base: p.x: jj workspace add /t/task -r main",
            "/t/task: p.branch: jj bookmark create work/task-0",
        ],
        "inspect": ["/t/task: p.x: jj status"],
        "snapshot": ["/t/task: p.x: jj commit -m 'Note it'"],
        "publish": ["/t/task: p.x: jj git push -b work/task-0"],
        "join": [
            "/t/task: p.x.fetch: jj git fetch",
            """/t/task: p.x.rebase: jj rebase -b @ -o '"work/task-0"@origin'""",
        ],
        "merged": ["/t/task: p.x.squash: jj squash"],
        "describe": [],
        "review": ["/t/task: p.x: jj show @- --stat"],
        "end": ["/t/task: p.x.forget: jj workspace forget", "/t: p.x.remove: /bin/rm -rf /t/task"],
    },
}


def new(name: str, **changes: object) -> Subject:
    return SUBJECTS[name](Variant(name=name, subject=name, label=name, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("name", SUBJECTS)
def test_each_motion_has_the_commands_that_an_agent_would_type(
    make_place: Callable[[Subject, Transport], Place], name: str, motion: str
) -> None:
    subject = new(name)
    steps = subject.steps(*MOTIONS[motion], make_place(subject, Transport.HTTP))
    assert [f"{step.cwd}: {step.row_name('p.x')}: {shlex.join(step.argv)}" for step in steps] == EXPECTED[name][motion]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_binary_of_a_variant_is_the_one_that_every_command_runs(
    make_place: Callable[[Subject, Transport], Place], name: str
) -> None:
    subject = new(name, binary="/opt/tool")
    place = make_place(subject, Transport.HTTP)
    steps = [step for asked in MOTIONS.values() for step in subject.steps(*asked, place)]
    steps += [*subject.create_store(place), *subject.seed_store(place, Path("/t/seed")), *subject.clone_base(place)]
    assert {step.argv[0] for step in steps} <= {"/opt/tool", "/bin/rm"} | ({"git"} if name == "jj" else set())


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_environment_is_built_from_nothing_and_names_only_its_own_home(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_PLANTED", "secret")
    environment = new(name).environment(Path("/t/home"))
    assert environment["HOME"] == "/t/home"
    assert "FAIRTRIAL_PLANTED" not in environment
    assert "secret" not in environment.values()


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_server_of_a_tool_s_own_listens_on_loopback_on_the_port_it_is_given(name: str) -> None:
    subject = new(name)
    served = Path("/t/served")
    servers = {transport: subject.server(transport, served) for transport in subject.transports}
    for serve in servers.values():
        if isinstance(serve, Serve):
            assert sum("{port}" in argument for argument in serve.argv) == 1
            assert serve.ready
    assert all(servers.get(each) is None for each in (Transport.FILE, Transport.HOSTED))
    assert all(servers.get(each) is not None for each in subject.transports & {Transport.HTTP, Transport.NATIVE})


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_store_lies_below_what_is_served(name: str) -> None:
    assert Path("/t/served") in new(name).served_store(Path("/t/served")).parents


def test_settings_of_an_hg_variant_stand_in_its_configuration_file() -> None:
    files = new("hg", settings={"extensions.share": "", "ui.timeout": "5"}).home_files(Path("/t/home"))
    assert files["hgrc"] == "[extensions]\nshare = \n[phases]\npublish = true\n[ui]\ntimeout = 5\n"
    assert "/ = /t/served/*\n" in files["hgweb.conf"]


def test_settings_of_a_jj_variant_are_toml_values() -> None:
    text = new("jj", settings={"git.colocate": "false"}).home_files(Path("/t/home"))["jj.toml"]
    parsed = tomllib.loads(text)
    assert parsed["git"].keys() == {"colocate", "executable-path"}
    assert parsed["git"]["colocate"] is False
    assert parsed["user"]["name"] == "fairtrial"


def test_fossil_never_publishes_by_committing(make_place: Callable[[Subject, Transport], Place]) -> None:
    fossil = new("fossil", settings={"binary-glob": "*"})
    steps = [shlex.join(step.argv) for step in fossil.create_store(make_place(fossil, Transport.FILE))]
    assert "fossil settings autosync 0 --global" in steps
    assert "fossil settings autosync 0 -R /t/served/store.fossil" in steps
    assert "fossil settings binary-glob '*' --global" in steps


def test_an_oak_variant_can_ask_for_json_when_it_pushes(make_place: Callable[[Subject, Transport], Place]) -> None:
    oak = new("oak", settings={"push_options": "--json"})
    (push,) = oak.steps(Motion.PUBLISH, Manner.PLAIN, make_place(oak, Transport.HTTP))
    assert push.argv == ("oak", "push", "--json")


@pytest.mark.parametrize("name", ["git", "hg", "fossil", "jj"])
def test_the_options_of_a_variant_are_given_to_the_clone_that_warm_acquisitions_share(
    name: str, make_place: Callable[[Subject, Transport], Place]
) -> None:
    subject = SUBJECTS[name](Variant(name="x", subject=name, label="x", acquire_options=("--tuned", "a b")))
    (step,) = subject.clone_base(make_place(subject, Transport.HTTP))
    at = step.argv.index("--tuned")
    assert step.argv[at + 1] == "a b"
    assert "clone" in step.argv[:at]
