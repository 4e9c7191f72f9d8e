"""One way to look resolved a test; each fails closed, with the kind that it should have."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.needs("bwrap", "git")

RunTrial = Callable[..., dict[str, Any]]
MEND = "sed -i 's/a - b/a + b/' calc.py\n"


def cheat(trial: RunTrial, script: str, **task: object) -> dict[str, Any]:
    """A script in the agent's place: what an agent could run, it can."""
    return trial(agent="nop", cheat=script, **task)


def said(row: dict[str, Any]) -> str:
    text = (row["directory"] / "transcript-work.jsonl").read_text()
    assert isinstance(text, str)
    return text


def commit_fix(world: Path) -> None:
    repository = world / "repo"
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", "checkout", "-q", "-b", "fix"], cwd=repository, env=env, check=True)
    (repository / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    subprocess.run(["git", *identity, "commit", "-q", "-a", "-m", "the fix"], cwd=repository, env=env, check=True)
    subprocess.run(["git", "tag", "solved"], cwd=repository, env=env, check=True)
    subprocess.run(["git", "checkout", "-q", "main"], cwd=repository, env=env, check=True)


def test_the_fix_cannot_be_read_from_history_refs_or_objects(trial: RunTrial, world: Path) -> None:
    commit_fix(world)
    script = """
for name in fix origin/fix solved ORIG_HEAD FETCH_HEAD main@{1} HEAD~1; do git checkout -q $name -- calc.py; done
git fetch --all; git reflog; git fsck --lost-found
for id in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do
  git cat-file -p $id | grep -q 'a + b' && git cat-file -p $id > calc.py
done
cat .git/objects/info/alternates || true
"""
    row = cheat(trial, script)
    assert (row["resolved"], row["error_kind"]) == (False, "oracle-failed")


def test_the_oracle_is_nowhere_while_the_agent_works(trial: RunTrial) -> None:
    script = """
find / -xdev -name 'test_hidden*' 2>/dev/null
grep -rlsI 'class Hidden' /workspace /tmp /home /run /opt /var
ls /oracle
"""
    row = cheat(trial, script)
    assert "test_hidden" not in said(row)
    assert row["resolved"] is False


def test_what_the_agent_leaves_behind_writes_nothing_later(trial: RunTrial) -> None:
    later = "setsid sh -c 'while :; do echo x > calc.py; mkdir -p /oracle; echo > /oracle/test_hidden.py; done' &\n"
    stop = "sleep 0.2; git checkout -q -- calc.py; " + MEND
    row = cheat(trial, later + stop)
    # Whichever bytes were there when the last process was killed are judged, and nothing after them.
    assert row["error_kind"] in {None, "oracle-failed", "verify-failed"}
    assert row["oracle_proof"] is not None


def test_forged_bytecode_is_not_judged(trial: RunTrial) -> None:
    script = """
cp calc.py keep && sed -i 's/a - b/a + b/' calc.py && touch -r keep calc.py && python3 -m compileall -q calc.py
cp -p keep calc.py && rm keep && touch -d @0 calc.py && ls __pycache__
"""
    row = cheat(trial, script)
    assert (row["resolved"], row["error_kind"]) == (False, "oracle-failed")
    assert row["diff_files"] == 0


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "conftest.py", "unittest.py"])
def test_a_file_that_is_loaded_by_itself_ends_nothing_well(trial: RunTrial, name: str) -> None:
    row = cheat(trial, f"printf 'import os\\nos._exit(0)\\n' > {name}")
    assert row["resolved"] is False
    assert row["oracle_passed"] is False
    assert row["error_kind"] in {"oracle-failed", "verify-failed"}
    assert row["auto_loaded"] == [name]


def test_files_that_are_swapped_until_the_end_are_judged_as_one_of_what_they_were(trial: RunTrial) -> None:
    swap = (
        "echo x >n; mv n calc.py; rm -f calc.py; ln -s /etc/passwd calc.py; rm -f calc.py; mkdir calc.py; rmdir calc.py"
    )
    row = cheat(trial, f"setsid sh -c 'touch begun; while :; do {swap}; done' & until test -e begun; do :; done")
    assert (row["resolved"], row["oracle_passed"], row["error_kind"]) == (False, False, "oracle-failed")
    assert row["oracle_proof"] == "proven"


@pytest.mark.parametrize(
    ("script", "n_files"),
    [
        ("mkdir sub; cd sub; git init -q .; git config core.worktree /etc; echo x >f; cd ..\n", 2),
        ("rm -rf .git; echo 'gitdir: /workspace/x' >.git\n", 1),
        ("mkdir sub; echo 'gitdir: ../.git' >sub/.git; echo x >sub/f\n", 2),
        ("yes '*' | head -n 300000 >.gitignore; yes '* filter=x' | head -n 100000 >.gitattributes\n", 3),
    ],
    ids=["a repository", "a file for ours", "a file", "rules"],
)
def test_no_git_in_the_tree_and_no_rule_of_the_agents_changes_what_is_judged(
    trial: RunTrial, script: str, n_files: int
) -> None:
    row = cheat(trial, script + MEND)
    assert (row["resolved"], row["error_kind"]) == (True, None), row["error_detail"]
    assert row["diff_files"] == n_files


NOTHING_TO_RUN: Final = "def load_tests(*_):\n    return __import__('unittest').TestSuite()\n"
ENDINGS: Final = """import atexit, os, sys
os.register_at_fork(before=lambda: os._exit(0))
atexit.register(os._exit, 0)
sys.settrace(lambda *_: None)
def add(a, b): return 0
"""


@pytest.mark.parametrize(
    "files",
    [{"tests/__init__.py": NOTHING_TO_RUN, "__init__.py": NOTHING_TO_RUN}, {"calc.py": ENDINGS}],
    ids=["tests", "endings"],
)
def test_what_a_change_does_to_the_run_of_the_tests_makes_none_pass(trial: RunTrial, files: dict[str, str]) -> None:
    row = cheat(trial, "".join(f"cat >{name} <<'END'\n{text}END\n" for name, text in files.items()))
    assert (row["resolved"], row["oracle_passed"], row["error_kind"]) == (False, False, "oracle-failed")
    assert row["oracle_counts"] == {"n_passed": 0, "n_failed": 1, "n_skipped": 0}


def test_an_exit_at_import_is_no_pass(trial: RunTrial) -> None:
    row = cheat(trial, "printf 'import os\\nos._exit(0)\\n' > calc.py")
    assert (row["oracle_passed"], row["error_kind"]) == (False, "oracle-failed")


def test_a_link_out_of_the_tree_leads_nowhere(trial: RunTrial, tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("def add(a, b):\n    return a + b\n")
    row = cheat(trial, f"rm calc.py; ln -s {tmp_path}/solution.py calc.py; ln -s /etc/shadow shadow; mkfifo pipe")
    assert row["resolved"] is False
    assert row["links_out"] == ["calc.py", "shadow"]
    assert row["refused_paths"] == ["pipe"]


def test_nothing_of_the_agents_git_runs_on_our_side(trial: RunTrial) -> None:
    mark = f"/var/tmp/fairtrial-attack-{os.getpid()}"
    script = (
        f"""
for hook in post-commit pre-commit post-checkout post-index-change fsmonitor-watchman; do
  mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch {mark}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
done
for key in core.fsmonitor core.sshCommand core.pager diff.x.textconv diff.x.command filter.x.clean filter.x.smudge \\
  filter.x.process; do git config $key 'touch {mark}'; done
git config core.attributesFile /workspace/.attributes; git config core.worktree /etc
echo '*.py filter=x diff=x' > .gitattributes; cp .gitattributes .attributes
printf '[submodule "s"]\\n path = s\\n url = ext::sh -c "touch {mark}"\\n' > .gitmodules
"""
        + MEND
    )
    row = cheat(trial, script)
    assert not Path(mark).exists()
    assert row["error_kind"] is None
    assert {".gitattributes", ".gitmodules"} <= set(row["auto_loaded"])


def test_destroying_the_sandbox_is_the_arms_failure(trial: RunTrial) -> None:
    row = cheat(trial, MEND + "kill -9 1; kill -9 -1")
    assert row["resolved"] is False
    assert row["error_kind"] in {"agent-crash", "sandbox-broken"}


def test_stopping_oneself_ends_with_the_time(trial: RunTrial) -> None:
    row = cheat(trial, "trap '' TERM; kill -STOP $$", timeout_s=5)
    assert (row["resolved"], row["error_kind"]) == (False, "agent-timeout")


def test_a_time_out_without_a_word_names_no_session_and_keeps_no_words(trial: RunTrial) -> None:
    forge = """
mkdir -p ~/.claude/projects/-workspace
printf '{"type":"result","subtype":"success","session_id":"forged","num_turns":9,"usage":{"output_tokens":7}}\n' \
  | tee ~/.claude/projects/-workspace/forged.jsonl >transcript-work.jsonl
exec sleep 600
"""
    row = cheat(trial, forge, timeout_s=5)
    assert (row["resolved"], row["error_kind"]) == (False, "agent-timeout"), row["error_detail"]
    assert (row["session_ids"], row["num_turns"], row["reported_usage"]) == ([], 0, [None])
    nothing = {"path": "transcript-work.jsonl", "sha256": hashlib.sha256().hexdigest(), "bytes": 0}
    assert row["transcript_artifacts"] == [{**nothing, "source": "parent-captured-stream-json"}]
    assert said(row) == "", "nothing was said, and nothing is made up"


@pytest.mark.parametrize(
    ("script", "limits"),
    [
        ("head -c 200M /dev/zero > big", {"disk_mib": 16}),
        ("yes", {"output_mib": 1}),
        ("python3 -c 'x = bytearray(1 << 30); import time; time.sleep(60)'", {"memory_mib": 128}),
        ("(for i in $(seq 5000); do sleep 60 & done); exec sleep 60", {"processes": 64}),
        ("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); : > f$i; done; sleep 60", {"inodes": 500}),
    ],
)
def test_a_limit_ends_the_trial_and_nothing_else(trial: RunTrial, script: str, limits: dict[str, int]) -> None:
    row = cheat(trial, script, limits=limits)
    assert (row["resolved"], row["error_kind"]) == (False, "limit-exceeded"), row["error_detail"]
    assert trial(agent="reference")["resolved"] is True


@pytest.mark.parametrize("agent", ["nop", "bash-agent"])
def test_nothing_inside_tells_task_arm_or_user(trial: RunTrial, world: Path, agent: str) -> None:
    script = (
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo /etc/passwd | tr '\\0' '\\n'; hostname"
    )
    text = said(trial(agent=agent, cheat=script))
    for word in ("mend-add", "baseline", str(world), os.environ["HOME"], "pytest", "fairtrial/", "payload/"):
        assert word not in text, word


def test_what_the_operator_told_the_same_agents_at_home_is_nowhere_inside(
    trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B13, B14."""
    mark = "told" + "-at-home"
    home = tmp_path / "home"
    for name in (
        "CLAUDE.md",
        ".claude/CLAUDE.md",
        ".claude/skills/mine/SKILL.md",
        ".agents/skills/mine/SKILL.md",
        ".codex/skills/mine/SKILL.md",
        ".codex/AGENTS.md",
        ".config/opencode/skills/mine/SKILL.md",
        ".gemini/skills/mine/SKILL.md",
        ".gemini/GEMINI.md",
        ".claude/settings.json",
        ".claude.json",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f'{{"{mark}": "{mark}"}}\n')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    monkeypatch.setenv("CODEX_HOME", str(home / ".codex"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    look = (
        "grep -rlsI -D skip --exclude-dir=proc --exclude-dir=usr 'told-at-hom[e]' / && echo SE''EN;"
        " env | grep -e told-at-hom[e] -e CLAUDE_CONFI[G] -e CODEX_HOM[E] -e XDG_CONFI[G] && echo SE''EN; echo lo''oked"
    )
    turns = [{"calls": [{"tool": "Bash", "input": {"command": look}}], "usage": {"output": 1}}, {"text": "Done."}]
    row = trial(turns)
    assert "looked" in said(row), said(row)
    assert "SEEN" not in said(row)
    (session,) = row["environment"]
    assert (session["skills"], session["mcp_servers"], session["hooks"]) == ({}, {}, {})
    assert mark not in str(row)


REPLACE_SKILL: Final = """
exec 2>/dev/null
for place in ~ ~/.claude ~/.claude/skills ~/.claude/skills/acme-work; do
  mv -T $place $place.away && echo MO''VED $place
done
mkdir -p ~/.claude/skills/acme-work
printf -- '---\\nname: acme-work\\ndescription: how\\n---\\nFOR''GED\\n' >~/.claude/skills/acme-work/SKILL.md
cat ~/.claude/skills/*/SKILL.md
echo tr''ied
"""


def test_a_placed_skill_cannot_be_replaced_with_the_directories_above_it(trial: RunTrial) -> None:
    turns = [
        {"calls": [{"tool": "Bash", "input": {"command": REPLACE_SKILL}}]},
        {"calls": [{"tool": "Skill", "input": {"skill": "acme-work"}}]},
        {"calls": [{"tool": "Bash", "input": {"command": MEND}}]},
        {"text": "Done."},
    ]
    row = trial(turns, arm="workflow_direct")
    assert (row["resolved"], row["skill_invoked"]) == (True, True), row["error_detail"]
    tried, loaded, _ = [event["output"] for line in said(row).splitlines() if (event := json.loads(line)).get("name")]
    assert "tried" in tried
    assert "MOVED" not in tried
    for text in (tried, loaded):
        assert "Do it." in text
        assert "FORGED" not in text


def test_a_skill_cannot_be_made_where_none_was_placed(trial: RunTrial) -> None:
    text = said(trial(agent="bash-agent", cheat=REPLACE_SKILL))
    assert "tried" in text
    assert "MOVED" not in text
    assert "FORGED" not in text


REWRITE_SKILL: Final = """
exec 2>/dev/null
cd .claude/skills
mv -T acme-work away && echo MO''VED
mkdir -p acme-work/build
echo FOR''GED >acme-work/build/more.md
echo FOR''GED >acme-work/SKILL.md
cat acme-work/SKILL.md acme-work/build/more.md
echo tr''ied
"""


def test_a_skill_of_the_repository_cannot_be_rewritten_for_a_while(trial: RunTrial, world: Path) -> None:
    """Not even a file that git ignores, of which no change would tell."""
    shutil.copytree(world / "acme-work", world / "repo" / ".claude" / "skills" / "acme-work")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("add", "-A"), (*identity, "commit", "-q", "-m", "a skill")):
        subprocess.run(["git", *words], cwd=world / "repo", env=env, check=True)
    turns = [
        {"calls": [{"tool": "Bash", "input": {"command": REWRITE_SKILL}}]},
        {"calls": [{"tool": "Skill", "input": {"skill": "acme-work"}}]},
        {"calls": [{"tool": "Bash", "input": {"command": "git checkout -q -- .claude && rm -rf .claude/skills/away"}}]},
        {"calls": [{"tool": "Bash", "input": {"command": MEND}}]},
        {"text": "Done."},
    ]
    row = trial(turns, arm="workflow_direct")
    tried, loaded, *_ = [event["output"] for line in said(row).splitlines() if (event := json.loads(line)).get("name")]
    assert "tried" in tried
    assert "MOVED" not in tried
    for text in (tried, loaded):
        assert "Do it." in text
        assert "FORGED" not in text
    assert (row["resolved"], row["skill_invoked"], row["diff_files"]) == (True, True, 1), row["error_detail"]


def test_output_that_is_no_text_is_kept_and_hurts_nothing(trial: RunTrial) -> None:
    row = cheat(trial, MEND + "printf '\\377\\376\\0{\"a\\n'")
    assert row["error_kind"] is None
    assert '"unparsed"' in said(row)


LEAVE_VARIABLES: Final = """
for name in ~/.profile ~/.bashrc ~/.bash_profile .profile .bashrc .env .envrc; do
  echo 'echo FOR''GED; exit 0' >$name
done
export ENV=/workspace/.env BASH_ENV=/workspace/.env LEFT=for''ged PATH=/workspace:$PATH
setsid sh -c 'export LEFT=for''ged; exec sleep 60' >/dev/null 2>&1 &
printf '#!/bin/sh\\nexit 0\\n' >env; printf '#!/bin/sh\\nexit 0\\n' >false; chmod +x env false
"""


def test_the_authored_check_has_no_variable_of_the_hosts_or_of_the_agents(
    trial: RunTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BASH_ENV", "ENV", "PYTHONSTARTUP", "ACME_TOKEN"):
        monkeypatch.setenv(name, "of-the-host")
    look = "(env; cat /proc/[0-9]*/environ) 2>/dev/null | tr '\\0' '\\n' | sort -u; echo looked; false"
    row = cheat(trial, LEAVE_VARIABLES, verify=look)
    assert (row["resolved"], row["error_kind"]) == (False, "verify-failed"), row["error_detail"]
    said_by_check = row["verify_output"]
    assert "looked" in said_by_check
    assert "PATH=" in said_by_check
    for word in ("of-the-host", "forged", "FORGED", "/workspace:", "FAIRTRIAL_", "TOKEN", "ENDPOINT"):
        assert word not in said_by_check, word


HANG_UP: Final = r"""
AGENT=$PPID python3 - <<'END'
import http.client, json, os
with open(f"/proc/{os.environ['AGENT']}/environ", "rb") as environ:
    own = dict(each.split("=", 1) for each in environ.read().decode().split("\0") if each)
body = {"model": own["MODEL"], "max_tokens": 999, "messages": [{"role": "user", "content": "ASIDE"}]}
headers = {"x-api-key": own["MODEL_TOKEN"], "content-type": "application/json"}
client = http.client.HTTPConnection(own["MODEL_ENDPOINT"].removeprefix("http://"))
client.request("POST", "/v1/messages", json.dumps(body | {"stream": True}), headers)
print("read", len(client.getresponse().read(1500)), "bytes and hung up")
client.close()
END
"""


def test_hanging_up_before_a_reply_tells_what_it_cost_makes_nothing_free(trial: RunTrial) -> None:
    """Its input was told when it began; what it wrote after the last that was seen is unknown, and the row says so."""
    usage = {"uncached_input": 100, "output": 10}
    long = {
        "text": "The answer. " * 400,
        "usage": {"uncached_input": 5000, "cache_read": 700, "output": 1600},
        "fault": {"kind": "stall", "parameter": 2500, "times": 0},
    }
    done = {"text": "Done.", "usage": usage}
    turns = [{"calls": [{"tool": "Bash", "input": {"command": MEND + HANG_UP}}], "usage": usage}, done]
    aside = {"name": "aside", "match": {"prompt_contains": "ASIDE"}, "turns": [long]}
    row = trial(agents=[aside, {"name": "main", "turns": turns}])
    assert "read 1500 bytes and hung up" in said(row)
    assert row["resolved"], row["error_detail"]
    assert row["wire"]["by_ending"] == {"answered": 2, "client-gone": 1}
    assert (row["input_tokens"], row["cache_read_input_tokens"], row["output_tokens"]) == (5200, 700, 21)
    assert row["usage_is_lower_bound"] is True
    honest = trial([{**turns[0], "calls": [{"tool": "Bash", "input": {"command": MEND}}]}, done])
    assert (honest["input_tokens"], honest["usage_is_lower_bound"]) == (200, False)
    told = row["wire"]["broken_cost_usd"]
    assert row["cost_usd"] == pytest.approx(honest["cost_usd"] + told)
    assert min(told, honest["cost_usd"]) > 0
    assert honest["wire"]["broken_cost_usd"] == 0.0
