"""Whole trials of the agent lane: a real repository, the real sandbox, the real gateway with a script."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fairtrial.bench.arms import Defaults, FoundArm, build_arm, read_arms
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.candidate import Candidate, candidate_arm
from fairtrial.bench.node import BLOBS, Node
from fairtrial.bench.tasks import bind_task, read_task_file
from fairtrial.bench.trial import run_bench_trial
from fairtrial.gateway.client import GatewayProcess
from fairtrial.gateway.settings import GatewaySettings
from fairtrial.host.files import remove_tree
from fairtrial.model.bench import BenchTrial
from fairtrial.model.trial import BenchSpec, ModelSource

MODEL: Final = "claude-sonnet-4-5"
FILES: Final = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    ".gitignore": "__pycache__/\nbuild/\n",
    "tests/test_calc.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_none(self):\n        pass\n",
}
ORACLE: Final = """import unittest


class Hidden(unittest.TestCase):
    def test_add(self):
        import calc

        self.assertEqual(calc.add(2, 3), 5)
"""
REFERENCE: Final = """--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""

Row = dict[str, Any]
RunTrial = Callable[..., Row]


USAGE: Final = {"uncached_input": 100, "output": 10}
DONE: Final = {"text": "Done.", "usage": USAGE}


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """A sweep's scratch directory, which any user may pass: with root, sandboxes run under another uid."""
    directory = Path(tempfile.mkdtemp(prefix="ft-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    remove_tree(directory)


@pytest.fixture(scope="session")
def control(scratch: Path) -> Iterator[Path]:
    """The gateway's control socket."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    with GatewayProcess(python=sys.executable) as gateway:
        yield gateway.start(GatewaySettings(directory=str(scratch / "g")), env)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A repository, an oracle and a reference."""
    repository = tmp_path / "repo"
    for name, text in FILES.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "base")):
        subprocess.run(["git", *words], cwd=repository, env=env, check=True)
    (tmp_path / "test_hidden.py").write_text(ORACLE)
    (tmp_path / "reference.patch").write_text(REFERENCE)
    for name in ("acme-plan", "acme-work", "acme-review"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: how\n---\nDo it.\n")
    return tmp_path


@pytest.fixture(scope="session")
def node_of() -> Iterator[Callable[[BenchSpec], Node]]:
    """One worker's share, made for the first trial."""
    made: list[Node] = []

    def find(spec: BenchSpec) -> Node:
        if not made:
            made.append(Node.open(spec))
        return made[0]

    yield find
    for node in made:
        node.close()


@pytest.fixture
def trial(
    scratch: Path, control: Path, world: Path, node_of: Callable[[BenchSpec], Node], request: pytest.FixtureRequest
) -> RunTrial:
    """Run one trial; its artifacts lie in `row["directory"]`."""

    def run(
        turns: list[dict[str, Any]] | None = None,
        *,
        arm: str = "baseline",
        arms: dict[str, FoundArm] | None = None,
        agent: str = "bash-agent",
        agents: list[dict[str, Any]] | None = None,
        cheat: str | None = None,
        timeout_s: float = 60,
        gateway: str | None = None,
        artifacts: dict[str, bytes] | None = None,
        candidate: Candidate | None = None,
        **task: object,
    ) -> Row:
        name = f"k{len(list(world.iterdir()))}"
        entry = {
            "id": "mend-add",
            "class": "bug-fix",
            "repo": "repo",
            "prompt": "Mend add in calc.py.",
            "verify": "python3 -m unittest discover -s tests -q",
            "reference": "reference.patch",
            "oracle": {
                "runner": "unittest",
                "command": "discover -s $FAIRTRIAL_ORACLE_ROOT",
                "expect_tests": 1,
                "files": [{"source": "test_hidden.py", "target": "test_hidden.py"}],
            },
            **task,
        }
        (world / "tasks.yaml").write_text(json.dumps({"tasks": [entry]}))
        script = world / f"{name}.script.yaml"
        conversation = agents or [{"name": "main", "turns": turns or [DONE]}]
        script.write_text(json.dumps({"schema": "script/1", "agents": conversation}))
        document, parsed = read_task_file(world / "tasks.yaml")
        blobs = BlobStore(scratch / BLOBS)
        bound = bind_task(document, 0, parsed.tasks[0], blobs)
        skills = {role: world / f"acme-{role}" for role in ("plan", "work", "review")}
        built = build_arm((arms or read_arms(None))[arm], Defaults(agent=agent, model=MODEL, skills=skills), blobs)
        if candidate is not None:
            built = candidate_arm(built, candidate, blobs)
        directory = world / name
        directory.mkdir()
        for artifact, content in (artifacts or {}).items():
            (directory / artifact).write_bytes(content)
        spec = BenchSpec(
            sweep=request.node.name,
            key=f"{request.node.nodeid}/{name}",
            attempt=1,
            plan_index=0,
            sweep_pass=0,
            results=str(directory),
            scratch=str(scratch),
            metadata={},
            bench=BenchTrial(
                task=bound,
                arm=built,
                run=0,
                block="b",
                position_in_block=0,
                block_order=(arm,),
                timeout_s=timeout_s,
                patch=bound.reference if agent == "reference" else None,
                cheat=blobs.put("cheat", cheat.encode()) if cheat is not None else None,
            ),
            gateway=gateway or str(control),
            source=ModelSource(script=str(script)),
            n_workers=1,
        )
        return run_bench_trial(node_of(spec), spec, directory) | {"directory": directory}

    return run
