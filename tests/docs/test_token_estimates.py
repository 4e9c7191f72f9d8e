"""`token-estimates.md` against the rules that the rows carry."""

import re
from collections.abc import Callable
from pathlib import Path

from fairtrial.evidence import tokens

ReadTable = Callable[..., list[dict[str, str]]]

PAGE = "token-estimates.md"


def test_the_versions_and_fields_are_those_of_the_rows(read_table: ReadTable) -> None:
    told = {
        line["version"].strip("`"): line["field"].strip("`")
        for line in read_table(PAGE, "Token estimates")
        if "version" in line
    }
    row = tokens.token_fields(1, 1)
    assert list(told) == [row["token_method"], row["token_envelope"], row["token_weights"]]
    assert set(told.values()) == {name for name in row if name.startswith("estimated_")}


def test_the_constants_are_those_of_the_rules(read_table: ReadTable) -> None:
    values = [line["value"] for line in read_table(PAGE, "Token estimates") if "constant" in line]
    assert [int(re.sub(r"\D", "", value)) for value in values] == [
        tokens._CHARACTERS_PER_TOKEN,
        tokens.ADMITTED_CHARACTERS,
        tokens.WRITTEN_TOKENS_PER_CALL,
        tokens.READ_TOKENS_PER_CALL,
        tokens.WRITTEN_WEIGHT,
        tokens.READ_WEIGHT,
    ]


def test_the_formulas_are_those_of_the_rules(read_table: ReadTable) -> None:
    formulas = [line["formula"] for line in read_table(PAGE, "Token estimates") if "formula" in line]
    for c, o in ((0, 0), (1, 0), (25, 0), (4, 20_001), (33, 7), (10**6, 10**6)):
        row = tokens.token_fields(c, o)
        assert [evaluate(formula, c=c, o=o, tokens=row["estimated_tokens"]) for formula in formulas] == [
            row["estimated_tokens"],
            row["estimated_tokens_with_envelope"],
            row["estimated_cost_weighted_tokens_with_envelope"],
        ]


def evaluate(formula: str, **values: int | str) -> object:
    """What a formula of the page gives; its text is ours."""
    scope = {"ceil": lambda x: -int(-x // 1), "min": min, "a": tokens.ADMITTED_CHARACTERS, "__builtins__": {}}
    return eval(formula.strip("`"), scope, values)  # noqa: S307


def test_the_example_is_right(reference: Path) -> None:
    (example,) = (line for line in (reference / PAGE).read_text().splitlines() if line.startswith("Example:"))
    (command,) = re.findall(r"`([^`]+)`", example)
    row = tokens.token_fields(len(command), 0)
    for said in (
        f"{row['command_characters']} characters",
        f"{row['estimated_tokens']} tokens",
        f"{row['estimated_tokens_with_envelope']} with the envelope",
        f"= {row['estimated_cost_weighted_tokens_with_envelope']} weighted",
    ):
        assert said in example
