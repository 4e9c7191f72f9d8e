"""A plugin as it is captured: what is taken, what is left at home, what is refused, and what its digest is over."""

import json
import os
import stat
from pathlib import Path

import pytest

from fairtrial.bench import plugin_files
from fairtrial.bench.blobs import BlobStore
from fairtrial.bench.plugin_files import capture_plugin, frozen_plugin, is_exact_version
from fairtrial.errors import UsageError
from fairtrial.model.bench import PluginFiles


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    root = tmp_path / "plugin"
    for path, text in {
        ".claude-plugin/plugin.json": json.dumps({"name": "acme", "version": "1.2.3", "author": {"name": "A"}}),
        "skills/acme-work/SKILL.md": "---\nname: acme-work\n---\nWork.\n",
        "scripts/run.sh": "#!/bin/sh\n",
        "commands/say.md": "Say it.\n",
        "hooks/hooks.json": "{}",
        "README.md": "Read me.\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "scripts" / "run.sh").chmod(0o755)
    return root


def capture(root: Path, blobs: BlobStore, **changes: object) -> PluginFiles:
    given: dict[str, object] = {"name": "acme", "version": "1.2.3", "skills": ("acme-work",), **changes}
    name, version = str(given.pop("name")), str(given.pop("version"))
    return capture_plugin(name, version, root, blobs, **given)  # type: ignore[arg-type] - they are what they should be


def taken(blobs: BlobStore, plugin: PluginFiles) -> dict[str, int]:
    root = frozen_plugin(blobs, plugin)
    return {
        path.relative_to(root).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_manifest_skills_scripts_and_assets_are_taken_and_nothing_can_be_written(
    plugin: Path, blobs: BlobStore
) -> None:
    captured = capture(plugin, blobs)
    assert taken(blobs, captured) == {
        ".claude-plugin/plugin.json": 0o444,
        "scripts/run.sh": 0o555,
        "skills/acme-work/SKILL.md": 0o444,
    }
    root = frozen_plugin(blobs, captured)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*")) if path.is_dir()} == {0o555}
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    assert (captured.file_count, captured.total_bytes) == (len(sizes), sum(sizes))
    assert captured.offers == ("acme:acme-work",)
    assert captured.manifest_schema_version == 1
    (plugin / ".claude-plugin" / "more.json").write_text("{}")
    captured = capture(plugin, blobs)
    left = {path.name for path in plugin.iterdir()} - {".claude-plugin", "assets", "scripts", "skills"}
    left |= {".claude-plugin/more.json"}
    assert "commands" in left
    assert captured.dropped == tuple(sorted(left)), "what is not taken is told"


def test_commands_and_agents_are_taken_when_they_are_asked_for(plugin: Path, blobs: BlobStore) -> None:
    captured = capture(plugin, blobs, parts=("skills", "commands"))
    assert "commands/say.md" in taken(blobs, captured)
    assert captured.offers == ("acme:acme-work", "acme:say")


@pytest.mark.parametrize(
    "path",
    [
        "skills/acme-work/tests/test_it.py",
        "skills/acme-work/docs/long.md",
        "skills/.git/config",
        "assets/node_modules/x/index.js",
        "scripts/__pycache__/run.pyc",
        "scripts/.env.local",
        "scripts/.npmrc",
        "assets/My-Credentials.txt",
        "assets/api_token",
        "assets/id.PEM",
    ],
)
def test_what_is_called_like_a_test_or_a_secret_is_left_at_home_and_said(
    path: str, plugin: Path, blobs: BlobStore
) -> None:
    before = capture(plugin, blobs)
    (plugin / path).parent.mkdir(parents=True, exist_ok=True)
    (plugin / path).write_text("x")
    captured = capture(plugin, blobs)
    assert captured.manifest_digest == before.manifest_digest
    (dropped,) = {*captured.dropped} - {*before.dropped}
    assert path == dropped or path.startswith(f"{dropped}/")


def test_the_digest_is_over_paths_bytes_and_executable_bits_and_nothing_else(plugin: Path, blobs: BlobStore) -> None:
    before = capture(plugin, blobs).manifest_digest
    (plugin / "README.md").write_text("another")
    os.utime(plugin / "skills" / "acme-work" / "SKILL.md", (1, 1))
    assert capture(plugin, blobs).manifest_digest == before
    (plugin / "scripts" / "run.sh").chmod(0o644)
    after_mode = capture(plugin, blobs).manifest_digest
    (plugin / "scripts" / "run.sh").rename(plugin / "scripts" / "go.sh")
    after_name = capture(plugin, blobs).manifest_digest
    (plugin / "scripts" / "go.sh").write_text("#!/bin/bash\n")
    after_bytes = capture(plugin, blobs).manifest_digest
    assert len({before, after_mode, after_name, after_bytes}) == 4


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": "1.2.4"}, 'its version is "1.2.3", not "1.2.4"'),
        ({"name": "other"}, 'its name is "acme", not "other"'),
        ({"skills": ("acme-work", "acme-plan")}, "has no skills/acme-plan/SKILL.md"),
    ],
)
def test_another_plugin_or_version_or_one_without_a_skill_is_refused(
    changes: dict[str, object], problem: str, plugin: Path, blobs: BlobStore
) -> None:
    with pytest.raises(UsageError, match=problem):
        capture(plugin, blobs, **changes)


@pytest.mark.parametrize("manifest", ["", "[]", '{"name": "acme", "name": "acme"}', '{"name": "acme"}'])
def test_a_manifest_that_is_none_is_refused(manifest: str, plugin: Path, blobs: BlobStore) -> None:
    (plugin / ".claude-plugin" / "plugin.json").write_text(manifest)
    with pytest.raises(UsageError, match=r"plugin\.json"):
        capture(plugin, blobs)


DEFINITIONS: list[tuple[dict[str, object], str]] = [
    ({"hooks": {"SessionStart": []}}, "has 'hooks', which is not taken"),
    ({"hooks": "./hooks/hooks.json"}, "has 'hooks', which is not taken"),
    ({"mcpServers": {"docs": {"type": "http", "url": "https://example.org"}}}, "has 'mcpServers', which is not taken"),
    ({"lspServers": {}}, "has 'lspServers', which is not taken"),
    ({"experimental": {"monitors": "./m.json"}}, "has 'experimental', which is not taken"),
    ({"commands": "./commands/"}, "has 'commands', but the arm's parts do not"),
    ({"skills": ["./skills/", "./more/"]}, r'skills has "./more/", which is no path below skills/'),
    ({"skills": "./"}, "is no path below skills/"),
    ({"skills": "./skills/../agents"}, "is no path below skills/"),
    ({"skills": "/skills/"}, "is no path below skills/"),
    ({"skills": [{"source": "./skills/"}]}, "is no path below skills/"),
]


@pytest.mark.parametrize(("more", "problem"), DEFINITIONS)
def test_a_manifest_that_defines_what_is_not_taken_is_refused_by_the_keys_name(
    more: dict[str, object], problem: str, plugin: Path, blobs: BlobStore
) -> None:
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps({"name": "acme", "version": "1.2.3", **more}))
    with pytest.raises(UsageError, match=rf"plugin\.json: .*{problem}"):
        capture(plugin, blobs)


@pytest.mark.parametrize(("more", "problem"), DEFINITIONS)
def test_so_is_a_marketplace_with_such_an_entry(
    more: dict[str, object], problem: str, plugin: Path, blobs: BlobStore
) -> None:
    market = {"name": "m", "owner": {"name": "o"}, "plugins": [{"name": "acme", "source": "./", **more}]}
    (plugin / ".claude-plugin" / "marketplace.json").write_text(json.dumps(market))
    with pytest.raises(UsageError, match=rf"marketplace\.json: plugins\[0\]: .*{problem}"):
        capture(plugin, blobs)


@pytest.mark.parametrize("market", ["", "[]", '{"plugins": {}}', '{"plugins": ["acme"]}'])
def test_a_marketplace_that_cannot_be_read_is_refused(market: str, plugin: Path, blobs: BlobStore) -> None:
    (plugin / ".claude-plugin" / "marketplace.json").write_text(market)
    with pytest.raises(UsageError, match=r"marketplace\.json"):
        capture(plugin, blobs)


def test_plain_metadata_and_paths_of_the_parts_are_taken(plugin: Path, blobs: BlobStore) -> None:
    entry = {"name": "acme", "version": "1.2.3", "keywords": ["a"], "license": "MIT", "homepage": "https://example.org"}
    manifest = {**entry, "skills": "./skills/", "commands": ["./commands/say.md"]}
    market = {
        "name": "m",
        "owner": {"name": "o"},
        "plugins": [{**entry, "source": "./", "skills": ["./skills/acme-work"]}],
    }
    (plugin / ".claude-plugin" / "plugin.json").write_text(json.dumps(manifest))
    (plugin / ".claude-plugin" / "marketplace.json").write_text(json.dumps(market))
    captured = capture(plugin, blobs, parts=("skills", "commands"))
    assert ".claude-plugin/marketplace.json" in taken(blobs, captured)
    assert captured.offers == ("acme:acme-work", "acme:say")


def test_a_directory_that_is_no_plugin_is_refused(tmp_path: Path, blobs: BlobStore) -> None:
    with pytest.raises(UsageError, match=r"plugin\.json"):
        capture(tmp_path / "nowhere", blobs)


@pytest.mark.parametrize(
    "place", ["skills/acme-work/more.md", "skills/more", "assets", ".claude-plugin/marketplace.json"]
)
def test_a_symbolic_link_is_refused(place: str, plugin: Path, blobs: BlobStore) -> None:
    (plugin / place).symlink_to(plugin / "README.md")
    with pytest.raises(UsageError, match="link"):
        capture(plugin, blobs)


def test_a_pipe_is_refused(plugin: Path, blobs: BlobStore) -> None:
    os.mkfifo(plugin / "skills" / "pipe")
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        capture(plugin, blobs)


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("MOST_FILES", 2, "more than 2 files"),
        ("MOST_FILE_BYTES", 10, "larger than 10 bytes"),
        ("MOST_BYTES", 80, "more than 80 bytes"),
        ("LONGEST_PATH_BYTES", 14, "a path of more than 14 bytes"),
    ],
)
def test_what_is_too_large_is_refused(
    limit: str, value: int, problem: str, plugin: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_files, limit, value)
    with pytest.raises(UsageError, match=problem):
        capture(plugin, blobs)


def test_the_limits_are_those_of_the_specification() -> None:
    assert (plugin_files.MOST_FILES, plugin_files.LONGEST_PATH_BYTES) == (2048, 1024)
    assert (plugin_files.MOST_FILE_BYTES, plugin_files.MOST_BYTES) == (2 << 20, 16 << 20)


@pytest.mark.parametrize("version", ["1.2.3", "0.0.1", "1.2.3-rc.1", "10.20.30+build.5"])
def test_an_exact_version_is_one(version: str) -> None:
    assert is_exact_version(version)


@pytest.mark.parametrize(
    "version", ["", "1", "1.2", "^1.2.3", "1.2.x", "latest", "v1.2.3", "01.2.3", "1.2.3 ", ">=1.2.3"]
)
def test_a_range_or_a_moving_name_is_no_exact_version(version: str) -> None:
    assert not is_exact_version(version)
