"""Everything that could leak a secret, for a process with planted secrets.

`provoke` raises each error and prints it as Python does, with its causes, and prints everything else shown. The
test searches its output and its files for the secrets.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import mdsx
from mdsx.cli.app import app
from mdsx.datasets import excerpt_of
from mdsx.storage import retry
from mdsx.torch import StreamingDataset
from tests.foreign.tars.tars import sample_members, tar_bytes

PASSWORD = "PLANTED-password+of/url"  # with characters of AWS's secret keys
SECRETS = {"PLANTED-password", "of/url", "PLANTED-endpoint", "PLANTED-token", "PLANTED-signature", "PLANTED-file"}


def provoke(where: str, bucket: str, output: str) -> None:
    """Write to the folder `where`, and print to the file `output`. The environment points to a server with `bucket`."""
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    logging.getLogger("mdsx").setLevel(logging.DEBUG)
    retry.TRIES = 2
    name, folder = bucket.removeprefix("s3://"), Path(where)
    with_password = f"s3://KEY:{PASSWORD.replace('/', '%2F')}@{name}"

    write(f"{with_password}/ds", 3)
    tell(lambda: write(f"{with_password}/ds", 1))
    with contextlib.suppress(KeyError):
        write(f"{with_password}/left", 30, then=KeyError())  # leaves an unfinished dataset with its record
    dataset = mdsx.Dataset(f"{with_password}/ds", cache=mdsx.Cache(folder / "cache", limit="10MB"))
    stream = StreamingDataset(f"{with_password}/ds", cache=mdsx.Cache(folder / "cache", limit="10MB"), batch_size=1)
    print(dataset, dataset[0], stream, json.dumps(stream.state_dict()), mdsx.Mixture([(f"{with_password}/ds", 1)]))
    storage = excerpt_of(dataset).shards.storage
    print([str(pickle.dumps(thing)) for thing in (dataset, storage)], vars(storage))
    for url in (f"{with_password}/ds", f"{with_password}/left", f"{with_password}/none"):
        for command in ("info", "cat", "verify", "merge"):
            run(command, url, "--json")
    (folder / "a.tar").write_bytes(tar_bytes(list(sample_members(range(3)))))
    run("convert", "tar", str(folder / "a.tar"), f"{with_password}/converted")
    storage.put("a.tar", (folder / "a.tar").read_bytes())
    run("convert", "tar", f"{with_password}/ds/a.tar", f"{with_password}/ds/a.tar", f"{with_password}/again")
    run("convert", "tar", f"{with_password}/ds/a.tar", f"{with_password}/again", "--json")
    run("convert", "tar", f"{with_password}/ds/none-{{1..2}}.tar", str(folder / "again"))

    for url in (
        f"s3://KEY:{PASSWORD}@{name}/ds",
        f"s3://KEY:{PASSWORD}",
        f"https://user:{PASSWORD}@host/ds",
        f"file://user:{PASSWORD}@host/ds",
        f"s3://{name}/ds?X-Amz-Signature=PLANTED-signature&x=1",
        f"https://{name}/ds?X-Amz-Credential=PLANTED-signature&X-Amz-Security-Token=PLANTED-token",
        f"s3://KEY:{PASSWORD}@[::1/ds",
        f"{with_password}/a/../b",
        f"{with_password}/none",
        f"s3://KEY:{PASSWORD.replace('/', '')}@no-such-bucket-here/ds",
    ):
        tell(lambda url=url: mdsx.Dataset(url))  # type: ignore[misc]
        tell(lambda url=url: write(url, 1))  # type: ignore[misc]
        run("info", url)
        run("convert", "tar", url, f"{folder}/out")

    server = os.environ["AWS_ENDPOINT_URL"]
    for endpoint in (
        "http://user:PLANTED-endpoint@127.0.0.1:9",  # no server listens
        "http://user:PLANTED-endpoint@127.0.0.1:9/?X-Amz-Signature=PLANTED-signature",
        "user:PLANTED-endpoint@host",
        "http://user:PLANTED-endpoint@[host",
        server.replace("://", "://user:PLANTED-endpoint@"),
    ):
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        tell(lambda: mdsx.Dataset(f"s3://{name}/none"))
        run("info", f"s3://{name}/none")
    os.environ["AWS_ENDPOINT_URL"] = server
    os.environ["AWS_SECRET_ACCESS_KEY"] = "PLANTED-password-that-is-wrong"
    os.environ["AWS_SESSION_TOKEN"] = "PLANTED-token"
    tell(lambda: mdsx.Dataset(f"s3://{name}/ds"))
    run("verify", f"s3://{name}/ds")
    del os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"]
    for text in (
        "[default]\naws_secret_access_key = PLANTED-file\n",
        "[default\naws_secret_access_key = PLANTED-file\n",
    ):
        (folder / "credentials").write_text(text)
        os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(folder / "credentials")
        tell(lambda: mdsx.Dataset(f"s3://{name}/ds"))
        run("info", f"s3://{name}/ds")
    (folder / "credentials").unlink()


def write(url: str, samples: int, then: Exception | None = None) -> None:
    with mdsx.Writer(url, {"text": "str"}, shard_size=200, metadata={"from": "nowhere"}) as out:
        for _ in range(samples):
            out.write({"text": "x" * 100})
        if then:
            raise then


def tell(do: Callable[[], object]) -> None:
    """Print the result, or the error as Python prints it."""
    try:
        print(do())
    except mdsx.MdsxError as error:
        traceback.print_exc()
        print(repr(error), vars(error), str(pickle.dumps(error)))


def run(*words: str) -> None:
    """Run a command in this process."""
    print("$", words[0])
    try:
        app(list(words), standalone_mode=False)
    except SystemExit as exit:
        print(exit.code)
    except Exception:
        traceback.print_exc()
