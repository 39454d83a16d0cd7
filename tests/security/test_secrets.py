"""Secrets of the environment, of files and of URLs never leak: not in errors and their causes, logs, `repr`, pickles,
states or commands, nor in any file that mdsx writes, locally or in storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdsx.errors import MdsxError
from mdsx.secret import redacted
from tests import fork_server
from tests.security.leaks import SECRETS, provoke
from tools.servers.s3 import S3Server


def test_no_secret_leaves_the_process(s3: S3Server, s3_url: str, tmp_path: Path) -> None:
    env = s3.env() | {"COLUMNS": "200", "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    output = tmp_path.with_name("output")
    process = fork_server.start(provoke, str(tmp_path), s3_url, str(output), environment=env)
    process.join(280)
    said = output.read_bytes()
    assert process.exitcode == 0, said.decode()[-3000:]
    assert said.count(b"Error") > 40  # the errors were provoked
    for word in (b"ForbiddenError", b"MissingError", b"UsageError", b"TransportError", b"SignatureDoesNotMatch"):
        assert word in said
    files = {path: path.read_bytes() for root in (tmp_path, s3.directory) for path in root.rglob("*") if path.is_file()}
    assert any(path.name == "writer.json" for path in files)
    assert any(path.name == "index.json" for path in files)
    for secret in {secret.encode() for secret in SECRETS} | {s3.secret.encode()}:
        assert secret not in said, said[max(said.find(secret) - 500, 0) :][:700].decode()
        for path, data in files.items():
            assert secret not in data, path


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@bucket/x", "s3://***@bucket/x"),
        ("s3://KEY:SEC/RET+a=@bucket/x", "s3://***@bucket/x"),
        ("https://token@host/x", "https://***@host/x"),
        ('connect to "http://a:b@h:1/x" and http://c:d@h', 'connect to "http://***@h:1/x" and http://***@h'),
        ("https://h/x?a=1&X-Amz-Signature=ab%20c&b=2", "https://h/x?a=1&X-Amz-Signature=***&b=2"),
        ("https://h/x?x-amz-security-token=abc", "https://h/x?x-amz-security-token=***"),
        ("s3://bucket/data@2024/x", "s3://bucket/data@2024/x"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("/data/a:b@c", "/data/a:b@c"),
    ],
)
def test_only_the_secrets_of_a_url_are_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown
    error = MdsxError(text, file=text, found=[text], hint=text)
    assert (error.message, error.file, error.hint) == (shown, shown, shown)
    assert shown == text or text not in str(error)
