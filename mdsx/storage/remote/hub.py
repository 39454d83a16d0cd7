"""Read from the Hugging Face Hub: `hf://datasets/ORG/NAME[@REVISION]/path` and `hf://buckets/ORG/NAME/path`.

The first response for a dataset says which commit the revision is, and all later requests name that commit, so the data
never changes during a run. A bucket has no revisions. As in other clouds, a replaced file has another ETag, the hash of
its content.
A large file is read through a link that expires. A process requests it once, and again after it has expired.
The protocol is that of the package huggingface_hub, which need not be installed.
"""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

import msgspec

from mdsx.base.process import Owner
from mdsx.errors import ForbiddenError, MissingError, TransportError, UsageError
from mdsx.secret import Secret
from mdsx.storage.base import Entry, MissingBucketError, check_key
from mdsx.storage.options import IN_HEADER, RemoteOptions, StorageOptions, parsed
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Answer
from mdsx.storage.remote.http import REDIRECTS, Headers, ReadOnlyStorage, asked_pause, shortened
from mdsx.storage.remote.storage import Pages, covering, ranged
from mdsx.storage.remote.trust import Address, endpoint, followed, named_hosts
from mdsx.storage.retry import TransientError

_PAGE = 1000  # files in a page of a listing
_HUB = "https://huggingface.co"
_HOSTS = ("huggingface.co", "*.huggingface.co", "*.hf.co")  # where the Hub keeps large files

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, repr=False)
class HubOptions(RemoteOptions):
    """`token`: used instead of HF_TOKEN and of the token that `hf auth login` stored.

    `redirects`: other hosts at which a self-hosted Hub keeps large files, separated by commas.
    """

    token: Secret | None = field(default=None, metadata=IN_HEADER)
    redirects: str | None = None


class _Lfs(msgspec.Struct):
    oid: str


class _Item(msgspec.Struct):
    """A file or a folder, in a listing."""

    type: str
    path: str
    oid: str = ""
    size: int = 0
    lfs: _Lfs | None = None
    xet_hash: str = msgspec.field(name="xetHash", default="")


class _Revision(msgspec.Struct):
    sha: str


class _Link(NamedTuple):
    """The location of a file: at `address`, or at its own URL if None."""

    address: Address | None
    etag: str


class _Links:
    """The links that this process knows. If several threads need the same link, one requests it and the others wait."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.known: dict[str, _Link] = {}
        self.locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class HubStorage(ReadOnlyStorage):
    """The files below a path of a dataset repository, or of a bucket."""

    way_out = "check HF_ENDPOINT or the option endpoint"
    instead = "upload a finished dataset with `hf upload`, to a bucket with `hf buckets sync`"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        found = _URL.fullmatch(url)
        if found is None:
            hint = "name a revision as in hf://datasets/ORG/NAME@REVISION/path"
            message = "a Hub URL is hf://datasets/ORG/NAME/path or hf://buckets/ORG/NAME/path"
            raise UsageError(message, hint=hint)
        self._kind, self._repository, revision = found["kind"], found["repository"], found["revision"]
        self._in_bucket, prefix = self._kind == "buckets", (found["prefix"] or "").strip("/")
        self._revision = unquote(revision or "main")
        name = f"hf://{self._kind}/{self._repository}" + (f"@{revision}" if revision else "")
        if revision and self._in_bucket:
            raise UsageError("a bucket has no revisions", found=name, hint=f"remove @{revision}")
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
        """Do nothing: requests without use would count against the rate limit."""

    def identity(self) -> str:
        if not self._options.anonymous:
            if self._options.token:
                return "the option token"
            if _stored_token():
                return "the token of HF_TOKEN or of `hf auth login`"
        return "none: requests are anonymous"

    def landmark(self) -> str:
        return f"{self._endpoint()}/api/{self._kind}/{self._repository}"

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        return body[:1] == b"{"

    def list(self, prefix: str = "") -> Iterator[Entry]:
        folder, _, _ = (self._prefix + prefix).rpartition("/")
        entries = [entry for entry in self._tree(folder) if entry.key.startswith(prefix)]
        yield from sorted(entries, key=lambda entry: entry.key)

    def _tree(self, folder: str) -> Iterator[Entry]:
        """Yield the files below a folder of the repository whose paths begin with the storage's prefix."""
        if self._in_bucket:
            url = f"{self.landmark()}/tree" + (f"/{quote(folder, safe='')}" if folder else "") + "?recursive=true"
        else:
            commit = self._commit or self._pinned(self._ask(self.url, "GET", self._api("revision"))[0])
            url = self._api("tree", commit) + (f"/{quote(folder)}" if folder else "")
            url += f"?recursive=true&limit={_PAGE}"
        at: Address | None = self._address(url, self.url)
        pages = Pages(self.url)
        while at is not None:
            try:
                page, headers = self._ask(self.url, "GET", at)
            except MissingError as error:
                if "EntryNotFound" in error.message:  # no such folder
                    return
                raise
            items = self._decoded(page, list[_Item])
            for item in items:
                if item.type == "file" and item.path.startswith(self._prefix):
                    etag = item.xet_hash if self._in_bucket else (item.lfs or item).oid
                    yield parse.entry(item.path[len(self._prefix) :], item.size, etag, 0.0, self.url)
            at = self._next(at, headers.get("Link") or "")
            if at is not None:
                pages.following(at.reveal(), len(items))

    def _next(self, at: Address, link: str) -> Address | None:
        """Return the address of the next page if the header `link` of a response from `at` names one."""
        found = _NEXT.search(link)
        following = found and followed(at, found[1], (), file=self.url, what="continues the listing")
        if following and not self._trusted().trusts(following.server):
            raise TransportError("the next page of the listing is not at the Hub", file=self.url, hint=self.way_out)
        return following

    def _pinned(self, answer: bytes) -> str:
        self._note(self._decoded(answer, _Revision).sha)
        return str(self._commit)

    def _decoded(self, answer: bytes, kind: type[T]) -> T:
        try:
            return parse.json(answer, kind)
        except ValueError as error:
            message = f"the endpoint did not return a response of the Hub: {error}"
            raise TransportError(message, file=self.url, hint=self.way_out) from None

    def _note(self, commit: str | None) -> None:
        """Pin the commit, or check that it is the pinned one. Without a commit (other servers), keep the revision."""
        if commit is None or self._in_bucket:
            return
        if self._commit is None:
            self._commit = commit
        if self._commit != commit:
            raise TransientError(TransportError, "the revision changed while it was opened", file=self.url)

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
            target = link.address or self._resolve_url(key)
            try:
                response = self._send(file, "GET", target, headers=headers)
            except ForbiddenError as error:
                if link.address is None:
                    raise
                links.known.pop(key, None)  # it has expired
                raise TransientError(ForbiddenError, error.message, file=file) from None
        status, sent = response.status, response.headers
        found = link.etag if link.address else self._etag(sent) or link.etag
        return covering(response, file, start, stop, status=status, etag=found, wanted=etag, headers=sent)

    def _resolved(self, key: str, headers: Mapping[str, str], file: str) -> tuple[Any, _Link]:
        """Return the link of a file, and the open response if the file is at its own URL."""
        at = first = self._address(self._resolve_url(key), file)
        etag = ""
        hosts = (*_HOSTS, *named_hosts(self._options.redirects))
        for _ in range(limits.HOPS):
            response = self._send(file, "GET", at, headers=headers, accepted=(200, 206, *REDIRECTS))
            self._note(response.headers.get("X-Repo-Commit"))
            etag = self._etag(response.headers) or etag
            if response.status not in REDIRECTS:
                return response, _Link(None if at == first else at, etag)
            response.close()
            at = followed(at, response.headers.get("Location") or ":", hosts, file=file)
            if not self._trusted().trusts(at.server):
                return None, _Link(at, etag)
        raise TransportError(f"there are more than {limits.HOPS} redirects", file=file)

    def _resolve_url(self, key: str) -> str:
        path, place = quote(self._prefix + check_key(key)), f"{self._endpoint()}/{self._kind}/{self._repository}"
        if self._in_bucket:
            return f"{place}/resolve/{path}"
        return f"{place}/resolve/{quote(self._commit or self._revision, safe='')}/{path}"

    def _api(self, what: str, revision: str | None = None) -> str:
        name = quote(revision or self._revision, safe="")
        return f"{self.landmark()}/{what}/{name}"

    def _etag(self, headers: Mapping[str, str]) -> str:
        """Return the ETag of the Hub's own response, without quotes, as listings have it."""
        if self._in_bucket and (content := headers.get("X-Xet-Hash")):
            return content
        return (headers.get("X-Linked-Etag") or headers.get("ETag") or "").removeprefix("W/").strip('"')

    def _endpoint(self) -> str:
        return endpoint(self._options.endpoint or os.environ.get("HF_ENDPOINT") or _HUB, file=self.url, form=_HUB)

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        return self._resolve_url(key), {}

    def _authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        token = None if self._options.anonymous else self._options.token or _stored_token()
        return address, {**headers, "Authorization": Secret.bearer(token)} if token else headers

    def _error(self, status: int, text: str, headers: Mapping[str, str], file: str) -> Exception:
        code = headers.get("X-Error-Code") or ""
        said = shortened(f"{code} {headers.get('X-Error-Message') or text}")
        if code == "RepoNotFound":
            hint = "check its name; a private one needs HF_TOKEN, or the option token"
            message = f"no such {'bucket' if self._in_bucket else 'repository'}: {said}"
            return TransientError(MissingBucketError, message, "bucket", file=file, hint=hint)
        if code == "RevisionNotFound":
            return MissingBucketError(f"no such revision: {said}", file=file, hint="check the revision after '@'")
        if code == "GatedRepo":
            hint = (
                f"accept its terms at {self._endpoint()}/{self._kind}/{self._repository}, and give that account's token"
            )
            return ForbiddenError(f"refused: {said}", file=file, hint=hint)
        if status == 401 and not code:
            hint = "check its name; if it is private, log in (hf auth login), or give HF_TOKEN or the option token"
            return ForbiddenError(f"refused: {status} {said}", file=file, hint=hint)
        if status == 429:
            limit = _RESET.search(headers.get("RateLimit") or "")
            after = float(limit[1]) if limit else asked_pause(headers)
            return TransientError(TransportError, "the Hub's rate limit is reached", file=file, after=after)
        return super()._error(status, said, headers, file)


def _stored_token() -> Secret | None:
    """Return the token that huggingface_hub would use: HF_TOKEN, or the one that `hf auth login` stored."""
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := Secret(os.environ.get(name, "").strip()):
            return token
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or os.path.join(home, "token")).expanduser()
    try:
        return Secret(path.read_text(encoding="utf-8").strip()) or None
    except OSError:
        return None


_URL = re.compile(
    r"hf://(?P<kind>datasets|buckets)/(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[^/?#@\s]+))?"
    r"(?P<prefix>/[^?#]*)?"
)
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_RESET = re.compile(r"\bt=([0-9]{1,9})\b")
