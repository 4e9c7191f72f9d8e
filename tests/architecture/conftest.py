from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def module_names(clone: Path) -> list[str]:
    """Every module under src, packages included, but not what runs inside a sandbox or is data."""
    paths = [path.relative_to(clone / "src") for path in (clone / "src" / "fairtrial").rglob("*.py")]
    names = [".".join(path.with_suffix("").parts) for path in paths if not {"payload", "examples"} & {*path.parts}]
    return sorted(name.removesuffix(".__init__") for name in names)
