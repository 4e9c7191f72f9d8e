import math

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.evidence.tokens import estimate_tokens, token_fields

sizes = st.integers(min_value=0, max_value=10**6)


@given(sizes, sizes, sizes)
def test_tokens_are_a_quarter_of_the_characters_rounded_up(command: int, output: int, admitted: int) -> None:
    assert estimate_tokens(command, output, admitted=admitted) == math.ceil((command + min(output, admitted)) / 4)


def test_output_beyond_the_admitted_cap_costs_nothing() -> None:
    # Figures that another harness published fit this formula: 67 MB gave 5012 tokens, with a command of 48 characters.
    assert estimate_tokens(48, 67_000_000) == 5012


def test_a_step_carries_its_inputs_three_estimates_and_the_rules_versions() -> None:
    assert token_fields(10, 30_000) == {
        "command_characters": 10,
        "output_characters": 30_000,
        "admitted_output_characters": 20_000,
        "estimated_tokens": 5003,
        "estimated_tokens_with_envelope": 5003 + 12 + 8,
        "estimated_cost_weighted_tokens_with_envelope": 5 * (3 + 12) + (5000 + 8),
        "token_method": "chars-div-4/1",
        "token_envelope": "envelope/1",
        "token_weights": "weights/1",
    }
