"""`exit-codes.md` against the errors and the commands."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from fairtrial.cli import finish, main
from fairtrial.errors import FairtrialError

ReadTable = Callable[..., list[dict[str, str]]]

PAGE = "exit-codes.md"


def classes(above: type[FairtrialError] = FairtrialError) -> Iterator[type[FairtrialError]]:
    yield above
    for below in above.__subclasses__():
        yield from classes(below)


def test_every_code_is_in_the_reference_and_no_other(read_table: ReadTable) -> None:
    codes = {str(each.exit_code) for each in classes() if each.__module__.startswith("fairtrial.")}
    codes |= {"0", str(finish.THE_ANSWER_IS_NO), str(finish.NOT_ENOUGH), str(finish.OUR_BUG), str(main.OUR_BUG)}
    told = [line["code"] for line in read_table(PAGE, "Exit codes") if "code" in line]
    assert told == [*sorted(codes, key=int), "128 + n"]


def test_every_command_has_a_line(read_table: ReadTable) -> None:
    told = " ".join(line["command"] for line in read_table(PAGE, "Exit codes") if "command" in line)
    assert set(re.findall(r"`([a-z]+)`", told)) == {*main.COMMANDS, *main.HIDDEN}


def test_codes_that_no_error_has_are_named_where_they_are_returned(clone: Path) -> None:
    allowed = {"0", "1", "2", "130", "128 + 13", "128"}
    for path in (clone / "src" / "fairtrial" / "cli").glob("*.py"):
        literal = re.findall(r"return (\d+(?: \+ \d+)?)(?: if| +|$|\n)", path.read_text())
        assert set(literal) <= allowed, path.name
