"""Takes secrets out of what is about to be written: known values in the forms they travel in, and shapes of keys.

A shape is a guess and a value is not: whoever knows the value gives it. What was taken out leaves its name behind, so
that a reader sees that something was there. Works on bytes, because what a program printed need not be text.
"""

import base64
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

__all__ = ["MIN_SECRET_CHARACTERS", "Redactor"]

MIN_SECRET_CHARACTERS: Final = 8
"""A shorter value would be found in innocent text."""

# A key is not the middle of a longer word; every repetition is of one set of characters, so matching stays linear.
_SHAPES: Final = {
    "private-key": (
        rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,._]|-(?!-)){0,20000}+"
        rb"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
    ),
    "anthropic-key": rb"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{8,}",
    "openai-key": rb"(?<![A-Za-z0-9])sk-(?!ant-)[A-Za-z0-9_-]{16,}",
    "google-key": rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}",
    "google-token": rb"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{16,}",
    "aws-key-id": rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "aws-secret": rb"(?i:aws_?secret_?access_?key)[\"'\\]{0,4}\s{0,4}[=:]\s{0,4}[\"'\\]{0,4}[A-Za-z0-9/+=]{40}",
    "github-token": rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})",
    "gitlab-token": rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}",
    "slack-token": rb"(?<![A-Za-z0-9])(?:xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})",
    "hugging-face-token": rb"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",
    "npm-token": rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}",
    "stripe-key": rb"(?<![A-Za-z0-9])[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    "jwt": rb"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "bearer-token": rb"(?i:(?<![A-Za-z0-9])bearer)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,}={0,2}",
    "url-password": rb"(?<=://)[A-Za-z0-9._%-]{1,100}:[^\s/@\"'\\]{3,200}(?=@)",
}


class Redactor:
    """Takes secrets out.

    Attributes:
        n_redacted: How often something was taken out so far.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Prepare.

        Args:
            values: Secrets that are known; those shorter than `MIN_SECRET_CHARACTERS` are not looked for.
        """
        forms = {form for value in values if len(value) >= MIN_SECRET_CHARACTERS for form in _forms_of(value)}
        # The longest first: a form may be the beginning of another.
        known = b"|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
        shapes = [b"(?P<%b>%b)" % (name.replace("-", "_").encode(), shape) for name, shape in _SHAPES.items()]
        self._pattern = re.compile(b"|".join([*([b"(?P<secret>%b)" % known] if known else []), *shapes]))
        self.n_redacted = 0

    def redact(self, data: bytes) -> bytes:
        """Return the bytes with each secret replaced by `[redacted:what]`."""
        return self._pattern.sub(self._replace, data)

    def redact_text(self, text: str) -> str:
        """Return the text likewise; characters that no UTF-8 can hold become `?`."""
        return self.redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def find(self, data: bytes) -> tuple[str, ...]:
        """Names of what would be taken out, in order."""
        return tuple(_name_of(match) for match in self._pattern.finditer(data))

    def _replace(self, match: re.Match[bytes]) -> bytes:
        self.n_redacted += 1
        return b"[redacted:%b]" % _name_of(match).encode()


def _name_of(match: re.Match[bytes]) -> str:
    return (match.lastgroup or "").replace("_", "-")


def _forms_of(value: str) -> Iterable[bytes]:
    """The ways in which a value is written in messages."""
    raw = value.encode()
    yield raw
    yield quote(value, safe="").encode()
    yield json.dumps(value)[1:-1].encode()
    # Of the three alignments of base64 the first stands for "the value alone"; padding is left off, more may follow.
    yield base64.b64encode(raw).rstrip(b"=")
    yield base64.urlsafe_b64encode(raw).rstrip(b"=")
