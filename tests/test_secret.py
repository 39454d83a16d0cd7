"""Secrets: nothing shows them, and messages lose their texts."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback

import pytest

from mdsx.secret import Secret, redacted

TEXT = "PLANTED+key/of=mine"


def test_no_text_form_shows_a_secret() -> None:
    secret = Secret(TEXT)
    shown = [repr(secret), str(secret), f"{secret} {secret:>9} {secret!r}", f"{secret} {secret!r}", repr([secret])]
    assert all(TEXT not in text and "***" in text for text in shown)
    record = logging.makeLogRecord({"msg": "key %s", "args": (secret,)})
    assert record.getMessage() == "key ***"
    with pytest.raises(TypeError) as raised:
        json.dumps({"key": secret})
    assert TEXT not in str(raised.value)
    with pytest.raises(TypeError):
        vars(secret)


def test_a_traceback_with_variables_shows_no_secret() -> None:
    def fail(key: Secret) -> None:
        raise ValueError(f"wrong {key}")

    try:
        fail(Secret(TEXT))
    except ValueError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "key = ***" in text
    assert "wrong ***" in text


def test_copies_and_pickles_are_equal_secrets() -> None:
    secret = Secret(TEXT)
    for other in (copy.deepcopy(secret), pickle.loads(pickle.dumps(secret)), Secret(TEXT)):
        assert other == secret
        assert hash(other) == hash(secret)
        assert other.reveal() == TEXT
    assert secret != TEXT
    assert Secret("a") != Secret("b")
    assert not Secret("")


def test_messages_lose_secrets_quoted_or_not() -> None:
    Secret("PLANTED%2Bquoted")
    Secret.query("st=1&api_key=PLANTEDvalue&x=y")
    login = Secret.login("user", "PLANTEDpassword")
    said = f"PLANTED+quoted PLANTED%2Bquoted PLANTEDvalue {login.reveal()} PLANTEDpassword"
    assert redacted(said) == "*** *** *** Basic *** ***"


def test_texts_that_are_not_utf_8_can_be_compared() -> None:
    """As variables of the environment may be."""
    assert Secret("key \udcff") == Secret("key \udcff") != Secret("key \udcfe")
