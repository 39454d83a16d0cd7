"""Encode text as tokens, with a tokenizer of the library `tokenizers`, or as bytes.

Rules:
- A text's tokens do not depend on other texts in the batch. A tokenizer's padding and truncation are ignored, and so
  are the tokens that its post-processor would add; `begin` and `end` are added instead.
- An empty text has no tokens, not even these.
- A tokenizer is pickled as the text of its file, and loaded once in each process. Processes share the CPUs: each uses
  `threads` threads.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from mdsx.errors import MissingError, SampleError, UnsupportedError, UsageError, shown

BYTES = "bytes"
"""The name of the tokenizer whose tokens are the bytes of UTF-8."""
END, BEGIN = "<|endoftext|>", "<|beginoftext|>"
_OF_BYTES = {END: 256, BEGIN: 257}
_INSTALL = "pip install 'mdsx[tokenize]'"


class Tokens(NamedTuple):
    """The tokens of some texts, one after the other, and how many each has."""

    ids: NDArray[np.unsignedinteger[Any]]
    lengths: NDArray[np.int64]


class Vocabulary(ABC):
    """Encodes texts as tokens. `name` and `digest` identify it; `size` is one more than a text's largest token."""

    name: str
    digest: str
    size: int

    @abstractmethod
    def token(self, given: str | int) -> int:
        """Return the token with this text or number. Raise UsageError if it does not exist."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of texts. Raise any exception if one of them cannot be encoded."""


class ByteVocabulary(Vocabulary):
    """The bytes of UTF-8, 0 to 255, and two more tokens: 256, `<|endoftext|>`, and 257, `<|beginoftext|>`."""

    name = digest = BYTES
    size = 256

    def token(self, given: str | int) -> int:
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= max(_OF_BYTES.values()):
            return given
        if given not in _OF_BYTES:
            expected = f"{' or '.join(_OF_BYTES)}, or a number up to {max(_OF_BYTES.values())}"
            raise UsageError("bytes have no such token", found=shown(given), expected=expected)
        return _OF_BYTES[str(given)]

    def encode(self, texts: Sequence[str]) -> Tokens:
        encoded = [text.encode() for text in texts]
        return Tokens(np.frombuffer(b"".join(encoded), np.uint8), np.fromiter(map(len, encoded), np.int64, len(texts)))


class FileVocabulary(Vocabulary):
    """A tokenizer.json. `threads`: how many each process may use."""

    def __init__(self, path: str, threads: int) -> None:
        """Read `path`. Raise UsageError without the package tokenizers, MissingError if the file does not exist,
        UnsupportedError if it is not a tokenizer."""
        self.name, self._threads, self._here = path, threads, True
        try:
            with open(path, encoding="utf-8") as file:
                self._content = file.read()
        except FileNotFoundError:
            hint = "give the path of a tokenizer.json, or bytes"
            raise MissingError("there is no such tokenizer", file=path, hint=hint) from None
        except (OSError, UnicodeDecodeError) as error:
            hint = "give the path of a tokenizer.json"
            raise UnsupportedError(f"the file is not a tokenizer: {error}", file=path, hint=hint) from None
        self.digest = xxhash.xxh3_128_hexdigest(self._content.encode())
        try:
            loaded = self._tokenizer()
        except ImportError:
            raise UsageError("tokenizing needs the package tokenizers", hint=_INSTALL) from None
        except Exception as error:  # the package raises plain Exceptions
            hint = "give a tokenizer.json, as `tokenizer.save_pretrained()` writes it"
            raise UnsupportedError(f"the file is not a tokenizer: {error}", file=path, hint=hint) from None
        if dropout := getattr(loaded.model, "dropout", None):
            hint = 'set "dropout" to null in a copy of the file: BPE dropout is for training'
            found = f"dropout {dropout:g}"
            raise UnsupportedError("the tokenizer chooses tokens at random", file=path, found=found, hint=hint)
        self._tokens: dict[str, int] = loaded.get_vocab(with_added_tokens=True)
        if not self._tokens:
            raise UnsupportedError("the tokenizer has no tokens", file=path)
        self.size = max(self._tokens.values()) + 1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tokens": {}, "_here": False}

    def token(self, given: str | int) -> int:
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < self.size:
            return given
        if given not in self._tokens:
            hint = f"give one of its tokens, or a number below {self.size}"
            raise UsageError("the tokenizer has no such token", file=self.name, found=shown(given), hint=hint)
        return self._tokens[str(given)]

    def encode(self, texts: Sequence[str]) -> Tokens:
        encoded = self._tokenizer().encode_batch_fast(list(texts), add_special_tokens=False)
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = chain.from_iterable(each.ids for each in encoded)
        return Tokens(np.fromiter(ids, np.uint32, int(lengths.sum())), lengths)

    def _tokenizer(self) -> Any:
        if self.digest not in _LOADED:
            if not self._here:  # a copy in a worker, which does not need threads otherwise
                os.environ.setdefault("RAYON_NUM_THREADS", str(self._threads))
                os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if self._threads > 1 else "false")
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_str(self._content)
            tokenizer.no_padding()
            tokenizer.no_truncation()
            _LOADED.clear()
            _LOADED[self.digest] = tokenizer
        return _LOADED[self.digest]


_LOADED: dict[str, Any] = {}
"""The tokenizer that this process has loaded, by the digest of its file."""


def open_vocabulary(tokenizer: str | os.PathLike[str], threads: int) -> Vocabulary:
    """Return the vocabulary of a tokenizer: the path of its file, or "bytes". Raise MdsxError."""
    path = os.fspath(tokenizer)
    return ByteVocabulary() if path == BYTES else FileVocabulary(path, threads)


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encodes documents as tokens of type `dtype`, with the tokens `begin` and `end` around each."""

    vocabulary: Vocabulary
    dtype: str
    begin: int | None
    end: int | None

    @property
    def size(self) -> int:
        """Return one more than the largest token."""
        return max(self.vocabulary.size, (self.begin or 0) + 1, (self.end or 0) + 1)

    @property
    def added(self) -> int:
        """Return how many tokens are added to a document."""
        return (self.begin is not None) + (self.end is not None)

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens of documents, one after the other, and how many each document has. Raise Exception."""
        ids, lengths = self.vocabulary.encode(texts)
        if not self.added:
            return ids.astype(self.dtype, copy=False), lengths
        filled = lengths > 0
        lengths = lengths + self.added * filled
        stops = np.cumsum(lengths)
        tokens = np.empty(int(stops[-1]) if len(stops) else 0, self.dtype)
        of_text = np.ones(len(tokens), np.bool_)
        for token, places in ((self.begin, stops - lengths), (self.end, stops - 1)):
            if token is not None:
                tokens[places[filled]] = token
                of_text[places[filled]] = False
        tokens[of_text] = ids
        return tokens, lengths

    def failure(self, text: str) -> SampleError | None:
        """Return why a document cannot be tokenized; None if it can."""
        try:
            text.encode()
            self.encode([text])
        except UnicodeEncodeError as error:
            found = f"the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}"
            return SampleError("the text cannot be written as UTF-8", found=found)
        except Exception as error:
            return SampleError(f"the tokenizer has no tokens for the text: {error}", found=shown(text[:80]))
        return None
