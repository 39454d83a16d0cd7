"""Redact the logs of the cloud libraries, which at DEBUG have URLs, headers and responses with secrets."""

from __future__ import annotations

import logging
import re

from mdsx.secret import redacted
from mdsx.storage.remote.trust import hide_proxies

_PACKAGES = ("azure", "boto3", "botocore", "google", "msal", "s3transfer", "urllib3")
_VALUES = re.compile(r"""(?<=[?&])([^\s=&"']+)=[^\s&"']*""")
"""The values of a query, which may be a link's signature."""
_NAMED = re.compile(
    r"((?:secret_?access_?key|(?:session|security|access|refresh|id)[-_]?token|client_secret|assertion|password)"
    r"""\b['">:= b\[(]{1,6})[^\s<"',&}]{6,}"""
    r"|((?:AWS4-HMAC-SHA256|SharedKey|Bearer|Basic) )[^\n'\"]+",
    re.IGNORECASE,
)
"""The values of fields in responses and headers whose names mean secrets."""


def keep_secrets() -> None:
    """Hide secrets in the logs of all existing loggers. Call it after importing a library that logs."""
    hide_proxies()
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in _PACKAGES:
            logging.getLogger(name).addFilter(_redaction)


class _Redaction(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _without_secrets(record.getMessage()), None
        if record.exc_info:
            record.exc_text = _without_secrets(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        return True


def _without_secrets(text: str) -> str:
    text = _VALUES.sub(r"\1=***", redacted(text))
    return _NAMED.sub(lambda match: f"{match[1] or match[2]}***", text)


_redaction = _Redaction()
