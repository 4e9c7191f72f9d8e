import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib import invalidate_caches
from pathlib import Path

import pytest

from fairtrial.agents.bash_agent import BashAgent
from fairtrial.plugins import load_plugin, name_of, plugin_names

SOURCES = {
    "acme/__init__.py": "",
    "acme/tool.py": "import json\nfrom acme.store import Store\nfrom . import program\nclass Tool: ...\n",
    "acme/store.py": "class Store:\n    def open(self):\n        from acme.deep import late\n",
    "acme/program.py": "import acme.tool\n",
    "acme/deep/__init__.py": "",
    "acme/deep/late.py": "",
    "acme/other.py": "import acme.tool\n",
    "acme-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1\n",
    "acme-1.dist-info/entry_points.txt": "[fairtrial.subjects]\nacme = acme.tool:Tool\nalone = alone:Alone\n",
    "alone.py": "import json\nclass Alone: ...\n",
}
COVERED = ["acme", "acme.deep", "acme.deep.late", "acme.program", "acme.store", "acme.tool"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with an installed distribution that has plugins."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in {"acme", "alone"}]:
        del sys.modules[name]
    invalidate_caches()


def digest(name: str) -> str:
    forget()
    return load_plugin("fairtrial.subjects", name).file_sha256


def test_the_digest_is_that_of_the_modules_of_the_package_that_a_plugin_imports(site: Path) -> None:
    paths = {name: site / (name.replace(".", "/") + ".py") for name in COVERED}
    paths |= {name: site / name.replace(".", "/") / "__init__.py" for name in ("acme", "acme.deep")}
    lines = [f"{sha256(paths[name].read_bytes()).hexdigest()}  {name}\n" for name in COVERED]
    assert digest("acme") == sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith(".py")])
def test_a_changed_file_is_a_changed_plugin_if_the_plugin_uses_it(site: Path, name: str) -> None:
    before = digest("acme"), digest("alone")
    with (site / name).open("a") as file:
        file.write("# changed\n")
    after = digest("acme"), digest("alone")
    assert (after[0] != before[0]) == (name not in {"acme/other.py", "alone.py"})
    assert (after[1] != before[1]) == (name == "alone.py")


def test_what_was_loaded_before_changes_no_digest() -> None:
    first = {name: load_plugin("fairtrial.subjects", name).file_sha256 for name in plugin_names("fairtrial.subjects")}
    again = {name: load_plugin("fairtrial.subjects", name).file_sha256 for name in reversed(first)}
    assert again == first
    assert len(set(first.values())) == len(first)


def test_a_class_is_named_as_people_ask_for_it(site: Path) -> None:
    assert site.is_dir()
    forget()
    assert name_of("fairtrial.subjects", load_plugin("fairtrial.subjects", "acme").target) == "acme"
    assert name_of("fairtrial.agents", BashAgent) == "bash-agent"
    assert name_of("fairtrial.agents", type("Mine", (BashAgent,), {})) == "Mine", "nobody declares it"
