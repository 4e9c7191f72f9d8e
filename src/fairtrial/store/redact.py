"""Takes secrets out of what is about to be written: known values in the forms they travel in, and shapes of keys.

A shape is a guess and a value is not: whoever knows the value gives it. A password has neither, but often a key that
says what it is. What was taken out leaves its name behind, so that a reader sees that something was there. Works on
bytes, because what a program printed need not be text.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, cast
from urllib.parse import quote

__all__ = ["CREDENTIAL_KEYS", "MIN_SECRET_CHARACTERS", "Redactor"]

MIN_SECRET_CHARACTERS: Final = 8
"""A shorter value would be found in innocent text."""
CREDENTIAL_KEYS: Final = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "set-cookie", "password", "secret", "client_secret"),
        *("x-api-key", "api-key", "api_key", "anthropic-api-key", "anthropic_api_key"),
        *("token", "access_token", "refresh_token"),
    }
)
"""Keys whose text is a secret whatever it looks like, casefolded."""
CREDENTIAL_MARK: Final = "[redacted:credential]"

# A word begins also after what stands for a line end or a colour: a key on a line of its own follows the letter of `\n`
# in JSON, the digits of `%0A` in a URL, the `m` of a colour on a terminal.
_WORD_START: Final = (
    rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)

# Each shape after the words of which it needs one: a text that has none of them is not searched for it.
# Every repetition is of one set of characters, so matching stays linear. Where a shape can begin inside itself, what
# began and came to nothing is taken as group 1, which is no secret: looked through again from each place in it, a text
# would take time with its square.
_SHAPES: Final = {
    "private-key": (
        (b"PRIVATE KEY-----",),
        (
            rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:[A-Za-z0-9+/=\s\\:,._]|-(?!-)){0,20000}"
            rb"(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"
        ),
    ),
    "anthropic-key": ((b"sk-ant-",), rb"sk-ant-[A-Za-z0-9_-]{8,}"),
    "openai-key": ((b"sk-",), _WORD_START + rb"sk-(?!ant-)[A-Za-z0-9_-]{16,}"),
    "google-key": ((b"AIza",), rb"AIza[A-Za-z0-9_-]{30,}"),
    "google-token": ((b"ya29.",), rb"ya29\.[A-Za-z0-9_-]{16,}"),
    "aws-key-id": ((b"AKIA", b"ASIA"), _WORD_START + rb"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "github-token": ((b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{22,}"),
    "github-key": ((b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"gh[pousr]_[A-Za-z0-9]{30,}"),
    "gitlab-token": ((b"glpat-",), rb"glpat-[A-Za-z0-9_-]{16,}"),
    "slack-token": ((b"xox",), rb"xox[a-z]-[A-Za-z0-9-]{10,}"),
    "slack-app-token": ((b"xapp-",), rb"xapp-[A-Za-z0-9-]{10,}"),
    "hugging-face-token": ((b"hf_",), rb"hf_[A-Za-z0-9]{30,}"),
    "npm-token": ((b"npm_",), rb"npm_[A-Za-z0-9]{36}"),
    "stripe-key": ((b"k_live_", b"k_test_"), rb"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    "jwt": ((b"eyJ",), rb"eyJ(?:[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+|([A-Za-z0-9_-]*+))"),
    "url-password": ((b"://",), rb"(?<=://)[A-Za-z0-9._%-]{1,100}:[^\s/@\"'\\]{3,200}(?=@)"),
}
# Those in which case does not matter, after a word in lower case.
_CASELESS: Final = {
    "aws-secret": (
        b"access",
        rb"(?i:aws_?secret_?access_?key)[\"'\\]{0,4}\s{0,4}[=:]\s{0,4}[\"'\\]{0,4}[A-Za-z0-9/+=]{40}",
    ),
    "bearer-token": (b"bearer", rb"(?i:bearer)[ \t]{1,4}[A-Za-z0-9._~+/-]{16,}={0,2}"),
}
_COMPILED: Final = tuple(
    (name, tuple(word.decode() for word in words), re.compile(shape)) for name, (words, shape) in _SHAPES.items()
)
_COMPILED_CASELESS: Final = tuple((name, word, re.compile(shape)) for name, (word, shape) in _CASELESS.items())


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
        self._forms = tuple(form.decode("latin-1") for form in forms)
        self._values = re.compile(known) if known else None
        self.n_redacted = 0

    def redact(self, data: bytes) -> bytes:
        """Return the bytes with each secret replaced by `[redacted:what]`."""
        for name, pattern in self._patterns_for(data):
            data, n = _take_out(pattern, data, mark=b"[redacted:%b]" % name.encode())
            self.n_redacted += n
        return data

    def redact_text(self, text: str) -> str:
        """Return the text likewise; characters that no UTF-8 can hold become `?`."""
        return self.redact(text.encode("utf-8", "replace")).decode("utf-8", "replace")

    def redact_members(self, value: dict[str, object]) -> None:
        """Replace, in a parsed object, each text under a credential's key, however deep and also in a list there.

        Only texts: a number under `token` is a count. It does not recurse: an agent may print any depth.
        """
        waiting: list[tuple[dict[str, object] | list[object], bool]] = [(value, False)]
        while waiting:
            held, is_secret = waiting.pop()
            if isinstance(held, list):
                for place, member in enumerate(held):
                    held[place] = self._member(member, waiting, is_secret=is_secret)
            else:
                for key, member in held.items():
                    is_named = key.casefold() in CREDENTIAL_KEYS
                    held[key] = self._member(member, waiting, is_secret=is_secret or is_named)

    def _member(
        self, member: object, waiting: list[tuple[dict[str, object] | list[object], bool]], *, is_secret: bool
    ) -> object:
        if isinstance(member, (dict, list)):
            held = cast("dict[str, object] | list[object]", member)
            waiting.append((held, is_secret))
            return held
        if is_secret and isinstance(member, str) and member:
            self.n_redacted += 1
            return CREDENTIAL_MARK
        return member

    def find(self, data: bytes) -> tuple[str, ...]:
        """Names of what would be taken out."""
        return tuple(name for name, pattern in self._patterns_for(data) if _holds(pattern, data))

    def _patterns_for(self, data: bytes) -> Iterator[tuple[str, re.Pattern[bytes]]]:
        """Known values first, then the shapes whose word is there."""
        # A character for each byte: to look into bytes costs an exception each time, as Python tries numbers first.
        text = data.decode("latin-1")
        if self._values is not None and any(form in text for form in self._forms):
            yield "secret", self._values
        # Not any(): each line of a wire log comes by here, and a generator costs more than a look.
        for name, words, pattern in _COMPILED:
            for word in words:
                if word in text:
                    yield name, pattern
                    break
        lowered = data.lower()
        for name, lower_word, pattern in _COMPILED_CASELESS:
            if lowered.find(lower_word) >= 0:
                yield name, pattern


def _take_out(pattern: re.Pattern[bytes], data: bytes, *, mark: bytes) -> tuple[bytes, int]:
    if pattern.groups == 0:
        return pattern.subn(mark, data)
    n = sum(found.lastindex is None for found in pattern.finditer(data))
    return pattern.sub(lambda found: mark if found.lastindex is None else found[0], data), n


def _holds(pattern: re.Pattern[bytes], data: bytes) -> bool:
    return any(found.lastindex is None for found in pattern.finditer(data))


def _forms_of(value: str) -> Iterable[bytes]:
    """The ways in which a value is written in messages."""
    raw = value.encode()
    yield raw
    yield quote(value, safe="").encode()
    yield json.dumps(value)[1:-1].encode()
    # Of the three alignments of base64 the first stands for "the value alone"; padding is left off, more may follow.
    yield base64.b64encode(raw).rstrip(b"=")
    yield base64.urlsafe_b64encode(raw).rstrip(b"=")
