"""Secrets: keys, tokens, passwords and signed URLs, held so that nothing shows them.

A `Secret` holds a text from the moment it is read until it is put into a request. As a second line of defence,
`redacted` removes this process's secrets, and those in URLs, from messages of servers and libraries, and from logs.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from urllib.parse import parse_qsl, quote, unquote

_LEAST = 6  # characters; shorter secrets are not redacted from messages
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
    """A text that `repr`, `str`, `format`, `vars`, JSON and tracebacks do not show. A pickle contains it.

    Messages hide every text in `hidden` too; by default, that is the secret itself.
    """

    __slots__ = ("_hidden", "_text")

    def __init__(self, text: str, hidden: tuple[str, ...] | None = None) -> None:
        self._text, self._hidden = text, hidden
        for each in (text,) if hidden is None else hidden:
            hide(each)

    @classmethod
    def query(cls, text: str) -> Secret:
        """Return a URL's query as a secret. Any of its values may be a key."""
        return cls(text, (text, *(value for _, value in parse_qsl(text))))

    @classmethod
    def login(cls, user: str, password: str) -> Secret:
        """Return the header for HTTP's Basic scheme."""
        encoded = b64encode(f"{user}:{password}".encode()).decode()
        return cls(f"Basic {encoded}", (encoded, password))

    @classmethod
    def bearer(cls, token: Secret) -> Secret:
        """Return the header for HTTP's Bearer scheme."""
        return cls(f"Bearer {token.reveal()}", ())

    def reveal(self) -> str:
        """Return the text. Call it only in the expression that sends or signs it, so that no variable holds it."""
        return self._text

    def __repr__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return format(_SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes, other._bytes)

    @property
    def _bytes(self) -> bytes:
        return self._text.encode(errors="surrogatepass")  # a variable of the environment may not be UTF-8

    def __hash__(self) -> int:
        return hash(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        return Secret, (self._text, self._hidden)


def revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def hide(text: str) -> None:
    """Redact `text`, also URL-quoted or unquoted, from this process's messages, if it is long enough to be a secret."""
    if len(text) >= _LEAST:
        _known.update((text, quote(text, safe=""), unquote(text)))


def redacted(text: str) -> str:
    """Return `text` with "***" in place of secrets: this process's, and those in URLs (user, password, signature)."""
    for secret in sorted(_known, key=len, reverse=True):  # a secret may contain another
        text = text.replace(secret, _SHOWN)
    return _PATTERN.sub(lambda match: "***@" if match[0].endswith("@") else f"{match[0].partition('=')[0]}=***", text)
