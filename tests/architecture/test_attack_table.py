"""The table of attacks names tests that are there."""

import re
from pathlib import Path


def test_every_test_that_the_table_of_attacks_names_is_there(clone: Path) -> None:
    table = (clone / "tests" / "attack" / "README.md").read_text()
    named = re.findall(r"`(test_\w+)(?:\[([\w-]+)\])?`", table)
    sources = [path.read_text() for path in (clone / "tests").rglob("test_*.py")]
    assert len(named) > 50
    for name, case in named:
        holding = [text for text in sources if re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)]
        assert holding, name
        assert not case or any(f'"{case}"' in text for text in holding), f"{name}[{case}]"
