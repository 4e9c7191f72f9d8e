"""Estimates of what a command and its output cost a model in tokens.

No tokenizer is involved: these are *estimates* by rules that are written down here, and every row carries the rule's
version. They serve to compare tools with each other, not to predict a bill.

`chars-div-4/1` (TOKEN_METHOD): ceil((command characters + admitted output characters) / 4). Four characters a token
is the usual rule of thumb for English text and code. Output is admitted up to 20,000 characters, because agent
programs cut a tool's output near there; what is cut costs nothing.

`envelope/1` (ENVELOPE_VERSION): each tool call is wrapped. Around the command the model writes a call object: a type,
an id, a tool name and a JSON object with one key, 12 tokens. Around the output the agent program puts a result
object: a type, the same id and a status, 8 tokens. Both are counts of the punctuation and keys of such objects in
common tool-call formats, rounded; a convention, not a measurement.

`weights/1` (WEIGHTS_VERSION): tokens that the model writes (command and call object) weigh 5, tokens that it reads
(admitted output and result object) weigh 1, after the usual ratio of 5 to 1 between the prices of output and input
tokens. A convention as well. Reading the same context again in later turns is not modelled.
"""

from typing import Final

__all__ = [
    "ADMITTED_CHARACTERS",
    "ENVELOPE_VERSION",
    "READ_TOKENS_PER_CALL",
    "READ_WEIGHT",
    "TOKEN_METHOD",
    "WEIGHTS_VERSION",
    "WRITTEN_TOKENS_PER_CALL",
    "WRITTEN_WEIGHT",
    "estimate_tokens",
    "token_fields",
]

TOKEN_METHOD: Final = "chars-div-4/1"  # noqa: S105 - tokens of text, no secret
ENVELOPE_VERSION: Final = "envelope/1"
WEIGHTS_VERSION: Final = "weights/1"
ADMITTED_CHARACTERS: Final = 20_000
WRITTEN_TOKENS_PER_CALL: Final = 12
READ_TOKENS_PER_CALL: Final = 8
WRITTEN_WEIGHT: Final = 5
READ_WEIGHT: Final = 1
_CHARACTERS_PER_TOKEN: Final = 4


def estimate_tokens(command_characters: int, output_characters: int, *, admitted: int = ADMITTED_CHARACTERS) -> int:
    """Estimate the tokens of one command and its output, without any wrapping.

    Args:
        command_characters: Characters of the command as the model would write it.
        output_characters: Characters of its whole output.
        admitted: Characters of output that an agent program would pass on.
    """
    return _tokens(command_characters + min(output_characters, admitted))


def token_fields(
    command_characters: int, output_characters: int, *, admitted: int = ADMITTED_CHARACTERS
) -> dict[str, int | str]:
    """Give the token fields of one step's row: the inputs, three estimates and the versions of their rules."""
    admitted_output = min(output_characters, admitted)
    tokens = estimate_tokens(command_characters, output_characters, admitted=admitted)
    written = _tokens(command_characters) + WRITTEN_TOKENS_PER_CALL
    read = _tokens(admitted_output) + READ_TOKENS_PER_CALL
    return {
        "command_characters": command_characters,
        "output_characters": output_characters,
        "admitted_output_characters": admitted_output,
        "estimated_tokens": tokens,
        "estimated_tokens_with_envelope": tokens + WRITTEN_TOKENS_PER_CALL + READ_TOKENS_PER_CALL,
        "estimated_cost_weighted_tokens_with_envelope": WRITTEN_WEIGHT * written + READ_WEIGHT * read,
        "token_method": TOKEN_METHOD,
        "token_envelope": ENVELOPE_VERSION,
        "token_weights": WEIGHTS_VERSION,
    }


def _tokens(characters: int) -> int:
    """Round up to whole tokens, in integers: a float would lose the last digit of long outputs."""
    return -(-characters // _CHARACTERS_PER_TOKEN)
