"""Secrets: keys, tokens, passwords and signed URLs, held so that nothing shows them.

A `Secret` holds a text from the moment it is read until it is put into a request. As a second line, `redacted` removes
the texts of all secrets of this process, and the secrets of any URL, from what others say: servers, libraries, logs.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from urllib.parse import parse_qsl, quote, unquote

_LEAST = 6  # characters; shorter texts are not looked for in messages
_SHOWN = "***"

_PATTERN = re.compile(
    r"(?<=://)[^\s/@:]{0,2000}:[^\s@]{0,2000}@"  # user:password@, even if the password has slashes, as AWS's do
    r"|(?<=://)(?<!az://)(?<!azure://)(?<!abfs://)(?<!abfss://)[^\s/@]*@"  # Azure has a container's name there
    r"|(?<=[?&])(?:X-(?:Amz|Goog)-(?:Credential|Security-Token|Signature)|AWSAccessKeyId|Signature|Policy|sig|token|upload_id)"
    r"=[^\s&#'\"]*",
    re.IGNORECASE,
)
_known: set[str] = set()


class Secret:
    """A text that `repr`, `str`, `format`, `vars`, JSON and tracebacks do not show. A pickle has it.

    Every text in `hidden` is removed from messages, too; by default, that is the secret itself.
    """

    __slots__ = ("_hidden", "_text")

    def __init__(self, text: str, hidden: tuple[str, ...] | None = None) -> None:
        self._text, self._hidden = text, hidden
        for each in (text,) if hidden is None else hidden:
            hide(each)

    @classmethod
    def query(cls, text: str) -> Secret:
        """Return the secret of a URL's query, each of whose values may be a key."""
        return cls(text, (text, *(value for _, value in parse_qsl(text))))

    @classmethod
    def login(cls, user: str, password: str) -> Secret:
        """Return a user and a password as HTTP's Basic scheme sends them."""
        encoded = b64encode(f"{user}:{password}".encode()).decode()
        return cls(f"Basic {encoded}", (encoded, password))

    @classmethod
    def bearer(cls, token: Secret) -> Secret:
        """Return a token as HTTP's Bearer scheme sends it."""
        return cls(f"Bearer {token.reveal()}", ())

    def reveal(self) -> str:
        """Return the text. Call it only in the expression that sends or signs it, so that no variable has it."""
        return self._text

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return format(_SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        return Secret, (self._text, self._hidden)


def revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def hide(text: str) -> None:
    """Let no message of this process show `text`, also quoted or unquoted, if it is long enough to be a secret."""
    if len(text) >= _LEAST:
        _known.update((text, quote(text, safe=""), unquote(text)))


def redacted(text: str) -> str:
    """Return `text` with "***" in place of secrets: those in URLs (user, password, signature), and the known ones."""
    for secret in sorted(_known, key=len, reverse=True):  # one may contain another
        text = text.replace(secret, _SHOWN)
    return _PATTERN.sub(lambda match: "***@" if match[0].endswith("@") else f"{match[0].partition('=')[0]}=***", text)
