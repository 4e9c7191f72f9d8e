"""The dialects by name, and which of them a request line is meant for."""

from collections.abc import Iterable, Mapping
from typing import Final

from fairtrial.gateway.anthropic import AnthropicMessages
from fairtrial.gateway.dialect import Dialect, Route
from fairtrial.gateway.gemini import Gemini
from fairtrial.gateway.openai_chat import OpenAIChat
from fairtrial.gateway.openai_responses import OpenAIResponses

__all__ = ["DIALECTS", "find_route"]

_ALL: Final[tuple[Dialect, ...]] = (AnthropicMessages(), OpenAIChat(), OpenAIResponses(), Gemini())

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in _ALL}
"""Every dialect by its name."""


def find_route(
    method: str, target: str, *, dialects: Iterable[Dialect] = DIALECTS.values()
) -> tuple[Dialect, Route] | None:
    """The dialect (the first, where two share a path: `GET /v1/models`) and its route; None for no model API path.

    Args:
        method: The request's method.
        target: Its path with its query.
        dialects: Those that the trial may speak.
    """
    for dialect in dialects:
        if (route := dialect.route(method, target)) is not None:
            return dialect, route
    return None
