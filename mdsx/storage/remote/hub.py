"""Reading from the Hugging Face Hub: `hf://datasets/ORG/NAME[@REVISION]/path`.

The first answer says which commit the revision is, and all later requests name that commit: what is read never changes
under a run. A large file is read through a link that expires. A process asks for it once, and again after it expired.
The protocol is that of the package huggingface_hub, which is not needed.
"""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from mdsx.errors import ForbiddenError, MissingError, TransportError, UsageError
from mdsx.process import Owner
from mdsx.storage.base import Entry, MissingBucketError, check_key
from mdsx.storage.options import RemoteOptions, StorageOptions, parsed, secret
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Answer
from mdsx.storage.remote.http import REDIRECTS, ReadOnlyStorage, asked_pause, shortened
from mdsx.storage.remote.storage import Pages, covering, ranged, split
from mdsx.storage.retry import TransientError

_PAGE = 1000  # files in an answer to a listing

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, repr=False)
class HubOptions(RemoteOptions):
    """`token`: instead of HF_TOKEN and of the one that `hf auth login` stored."""

    token: str | None = secret()


class _Lfs(msgspec.Struct):
    oid: str


class _Item(msgspec.Struct):
    """A file or a folder, in a listing."""

    type: str
    path: str
    oid: str
    size: int = 0
    lfs: _Lfs | None = None


class _Revision(msgspec.Struct):
    sha: str


class _Link(NamedTuple):
    """Where a file is: at `url`, or at its own address if that is None."""

    url: str | None
    etag: str


class _Links:
    """The links that this process knows. Threads that need the same one wait for the first of them."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.known: dict[str, _Link] = {}
        self.locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class HubStorage(ReadOnlyStorage):
    """The files below a path of a dataset repository."""

    way_out = "check HF_ENDPOINT or the option endpoint"
    instead = "upload a finished dataset with `hf upload`"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            hint = "name a revision as in hf://datasets/ORG/NAME@REVISION/path"
            raise UsageError("a Hub URL is hf://datasets/ORG/NAME/path", hint=hint)
        self._repository, revision, prefix = found["repository"], found["revision"], (found["prefix"] or "").strip("/")
        self._revision = unquote(revision or "main")
        name = f"hf://datasets/{self._repository}" + (f"@{revision}" if revision else "")
        self._options = parsed(HubOptions, given, name)
        super().__init__(f"{name}/{prefix}".rstrip("/"), self._repository, prefix, self._options.connect_timeout)
        self._commit: str | None = None
        self._links = _Links()

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        del state["_links"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._links = _Links()

    def connect(self, key: str, count: int) -> None:
        """Do nothing: requests for nothing would count against the rate limit."""

    def identity(self) -> str:
        if not self._options.anonymous:
            if self._options.token:
                return "the option token"
            if _stored_token():
                return "the token of HF_TOKEN or of `hf auth login`"
        return "none: requests are anonymous"

    def landmark(self) -> str:
        return f"{self._endpoint()}/api/datasets/{self._repository}"

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        return body[:1] == b"{"

    def list(self, prefix: str = "") -> Iterator[Entry]:
        folder, _, _ = (self._prefix + prefix).rpartition("/")
        entries = [entry for entry in self._tree(folder) if entry.key.startswith(prefix)]
        yield from sorted(entries, key=lambda entry: entry.key)

    def _tree(self, folder: str) -> Iterator[Entry]:
        """Yield the files below a folder of the repository whose path begins with the storage's prefix."""
        commit = self._commit or self._pinned(self._ask(self.url, "GET", self._api("revision"))[0])
        url: str | None = self._api("tree", commit) + (f"/{quote(folder)}" if folder else "")
        url = f"{url}?recursive=true&limit={_PAGE}"
        pages = Pages(self.url)
        while url is not None:
            try:
                page, headers = self._ask(self.url, "GET", url)
            except MissingError as error:
                if "EntryNotFound" in error.message:  # no such folder
                    return
                raise
            items = self._decoded(page, list[_Item])
            for item in items:
                if item.type == "file" and item.path.startswith(self._prefix):
                    yield parse.entry(item.path[len(self._prefix) :], item.size, (item.lfs or item).oid, 0.0, self.url)
            url = self._next(url, headers.get("Link") or "")
            url = url and pages.following(url, len(items))

    def _next(self, url: str, link: str) -> str | None:
        """Return the URL of the next page, which an answer from `url` names in its header `link`, if there is one."""
        found = _NEXT.search(link)
        if found is None:
            return None
        with suppress(ValueError):
            if self._is_hub(following := parse.web_url(url, found[1])):
                return following
        raise TransportError("the next page of the listing is not at the Hub", file=self.url, hint=self.way_out)

    def _pinned(self, answer: bytes) -> str:
        self._note(self._decoded(answer, _Revision).sha)
        return str(self._commit)

    def _decoded(self, answer: bytes, kind: type[T]) -> T:
        try:
            return parse.json(answer, kind)
        except ValueError as error:
            message = f"the answer is not one of the Hub: {error}"
            raise TransportError(message, file=self.url, hint=self.way_out) from None

    def _note(self, commit: str | None) -> None:
        """Pin the commit, or check that it is the pinned one. Without one (other servers), the revision stays."""
        if commit is None:
            return
        if self._commit is None:
            self._commit = commit
        if self._commit != commit:
            raise TransientError(TransportError, "the revision moved while it was opened", file=self.url)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Answer:
        file, wanted = self._file(key), ranged(start, stop)
        headers = {"Range": wanted} if wanted else {}
        if not self._links.owner.here:
            self._links = _Links()
        links, response = self._links, None
        link = links.known.get(key)
        if link is None:
            with links.locks[key]:
                link = links.known.get(key)
                if link is None:
                    response, link = self._resolved(key, headers, file)
                    links.known[key] = link
        if response is None:
            target = link.url or self._resolve_url(key)
            try:
                response = self._send(file, "GET", target, headers=headers)
            except ForbiddenError as error:
                if link.url is None:
                    raise
                links.known.pop(key, None)  # it has expired
                raise TransientError(ForbiddenError, error.message, file=file) from None
        status, sent = response.status, response.headers
        found = link.etag if link.url else _etag(sent) or link.etag
        return covering(response, file, start, stop, status=status, etag=found, wanted=etag, headers=sent)

    def _resolved(self, key: str, headers: Mapping[str, str], file: str) -> tuple[Any, _Link]:
        """Return where a file is, and the open answer if that is here."""
        url = first = self._resolve_url(key)
        for _ in range(limits.HOPS):
            response = self._send(file, "GET", url, headers=headers, accepted=(200, 206, *REDIRECTS))
            self._note(response.headers.get("X-Repo-Commit"))
            etag = _etag(response.headers)
            if response.status not in REDIRECTS:
                return response, _Link(None if url == first else url, etag)
            response.close()
            try:
                url = parse.web_url(url, response.headers.get("Location") or "")
                there = self._is_hub(url)
            except ValueError:
                raise TransportError("the Hub redirects to what is not a URL", file=file) from None
            if not there:
                return None, _Link(url, etag)
        raise TransportError(f"there are more than {limits.HOPS} redirects", file=file)

    def _resolve_url(self, key: str) -> str:
        revision = quote(self._commit or self._revision, safe="")
        path = quote(self._prefix + check_key(key))
        return f"{self._endpoint()}/datasets/{self._repository}/resolve/{revision}/{path}"

    def _api(self, what: str, revision: str | None = None) -> str:
        name = quote(revision or self._revision, safe="")
        return f"{self._endpoint()}/api/datasets/{self._repository}/{what}/{name}"

    def _endpoint(self) -> str:
        return (self._options.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")

    def _is_hub(self, url: str) -> bool:
        return split(self._endpoint())[:2] == urlsplit(url)[:2]

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        return self._resolve_url(key), {}

    def _authorised(self, method: str, url: str, headers: dict[str, str], file: str) -> tuple[str, dict[str, str]]:
        token = None if self._options.anonymous else self._options.token or _stored_token()
        if token and self._is_hub(url):
            headers["Authorization"] = f"Bearer {token}"
        return url, headers

    def _error(self, status: int, text: str, headers: Mapping[str, str], file: str) -> Exception:
        code = headers.get("X-Error-Code") or ""
        said = shortened(f"{code} {headers.get('X-Error-Message') or text}")
        if code == "RepoNotFound":
            hint = "check its name; a private one needs HF_TOKEN, or the option token"
            message = f"there is no such repository: {said}"
            return TransientError(MissingBucketError, message, "bucket", file=file, hint=hint)
        if code == "RevisionNotFound":
            return MissingBucketError(f"there is no such revision: {said}", file=file, hint="check what follows '@'")
        if code == "GatedRepo":
            hint = f"accept its terms at {self._endpoint()}/datasets/{self._repository}, and give that account's token"
            return ForbiddenError(f"refused: {said}", file=file, hint=hint)
        if status == 401 and not code:
            hint = "check its name; if it is private, log in (hf auth login), or give HF_TOKEN or the option token"
            return ForbiddenError(f"refused: {status} {said}", file=file, hint=hint)
        if status == 429:
            limit = _RESET.search(headers.get("RateLimit") or "")
            after = float(limit[1]) if limit else asked_pause(headers)
            return TransientError(TransportError, "the Hub's rate limit is reached", file=file, after=after)
        return super()._error(status, said, headers, file)


def _stored_token() -> str | None:
    """Return the token that huggingface_hub would use: HF_TOKEN, or what `hf auth login` stored."""
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := os.environ.get(name, "").strip():
            return token
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")).expanduser()
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _etag(headers: Mapping[str, str]) -> str:
    """Return the ETag of the Hub's own answer, without quotes, as listings have it."""
    return (headers.get("X-Linked-Etag") or headers.get("ETag") or "").removeprefix("W/").strip('"')


_URL = re.compile(
    r"hf://datasets/(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[^/?#@\s]+))?"
    r"(?P<prefix>/[^?#]*)?"
)
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_RESET = re.compile(r"\bt=([0-9]{1,9})\b")
