"""A local Hugging Face hub: what reading `hf://datasets/ORG/NAME@REVISION/PATH` and `hf://buckets/ORG/NAME/PATH` needs,
in threads of this process.

    with Hub(directory) as hub:
        commit = hub.publish("org/name", source)  # a directory; its files are copied
        hub.fill("org/bucket", source)
        os.environ.update(hub.env())

It answers as huggingface.co does, as far as `huggingface_hub` shows it:
- `/api/datasets/REPO[/revision/REV]`: the commit (`sha`) of a branch.
- `/api/datasets/REPO/tree/REV[/PATH]?recursive=true`: entries in pages, with a `Link` to the next.
- `/datasets/REPO/resolve/REV/PATH`: a small file, by a relative redirect (307) to a cache; a large one (LFS), by a
  redirect (302) to a signed URL on another port, which expires (403) and answers 400 if it gets a token.
- `/api/buckets/BUCKET[/tree[/PREFIX]?recursive=true]` and `/buckets/BUCKET/resolve/PATH`: a bucket, without revisions;
  each file is read through a signed URL of its content, whose hash the header X-Xet-Hash and listings have.
- An unknown repository is 401 without a token and 404 with one, as is a private one without access; a gated one is 401
  or 403; a wrong token is 401. The header X-Error-Code distinguishes a missing revision, file and repository.

It lacks Xet's own protocol (files that it stores can also be read over plain HTTP), writing, and models and spaces. A
hash of Xet is one of other blocks; here it is the SHA-256.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets
import shutil
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tools.servers.web import serving

_ROUTES = {
    "api": re.compile(r"/api/datasets/([^/]+/[^/]+)(?:/revision/([^/]+))?"),
    "tree": re.compile(r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.*))?"),
    "resolve": re.compile(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)"),
    "small": re.compile(r"/api/resolve-cache/datasets/([^/]+/[^/]+)/([^/]+)/(.+)"),
    "signed": re.compile(r"/signed/([^/]+/[^/]+)/([^/]+)/(.+)"),
    "bucket": re.compile(r"/api/buckets/([^/]+/[^/]+)"),
    "bucket_tree": re.compile(r"/api/buckets/([^/]+/[^/]+)/tree(?:/([^/]*))?"),
    "bucket_file": re.compile(r"/buckets/([^/]+/[^/]+)/resolve/(.+)"),
}
_DAY = "2026-01-01T00:00:00.000Z"


@dataclass
class Repository:
    """A dataset repository: the commits of its branches, and who may read it."""

    branches: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False


@dataclass
class Bucket:
    """A bucket: the files that it has now, by path, each with the hash of its content; and who may read it."""

    files: dict[str, str] = field(default_factory=dict)
    private: bool = False


class Hub:
    """The hub on a free port, while the context lasts. Its attributes may be changed at any time."""

    token = "hf_mdsxlocal"
    """The token that may read every repository."""
    stranger = "hf_mdsxstranger"
    """A valid token that may read only public repositories."""

    def __init__(self, directory: str | Path, *, large: int = 1024, page: int = 1000) -> None:
        self.directory = Path(directory)
        self.repositories: dict[str, Repository] = {}
        self.buckets: dict[str, Bucket] = {}
        self.large = large  # bytes from which on a file is stored in LFS
        self.page = page  # entries of a listing in one answer
        self.link_seconds = 3600.0  # for which a signed URL is valid
        self.requests: Counter[str] = Counter()  # those of _ROUTES: answered; "limited": refused
        self._key = secrets.token_bytes()
        self._limited: tuple[int, float, str] = (0, 0.0, "")
        self._lock = threading.Lock()
        self._serving = ExitStack()

    def __enter__(self) -> Self:
        application = Starlette(routes=[Route("/{path:path}", self._answer)])
        self.endpoint, self._links = (self._serving.enter_context(serving(application)) for _ in range(2))
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.close()

    def env(self) -> dict[str, str]:
        """The environment in which huggingface_hub, and so mdsx, uses only this hub, without a token."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "NO_PROXY": "127.0.0.1,localhost"}

    def publish(self, name: str, source: Path, *, branch: str = "main", **access: bool) -> str:
        """Commit the files of `source` to a branch of a repository ("org/name"). Return the commit.

        `access`: `private` and `gated`, of the repository.
        """
        files = sorted(path for path in source.rglob("*") if path.is_file())
        digest = hashlib.sha1()
        for path in files:
            digest.update(f"{path.relative_to(source)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        commit = digest.hexdigest()
        shutil.copytree(source, self.directory / name / commit, dirs_exist_ok=True)
        repository = self.repositories.setdefault(name, Repository())
        repository.branches[branch] = commit
        for key, value in access.items():
            setattr(repository, key, value)
        return commit

    def fill(self, name: str, source: Path, *, private: bool = False) -> None:
        """Put the files of `source` into a bucket ("org/name"), in place of those of the same path."""
        bucket = self.buckets.setdefault(name, Bucket())
        bucket.private = private
        contents = self.directory / name / "contents"
        contents.mkdir(parents=True, exist_ok=True)
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            data = path.read_bytes()
            content = bucket.files[path.relative_to(source).as_posix()] = hashlib.sha256(data).hexdigest()
            (contents / content).write_bytes(data)

    def expire_links(self) -> None:
        """Expire every signed URL handed out so far."""
        self._key = secrets.token_bytes()

    def limit(self, requests: int, *, seconds: float = 1.0, kind: str = "") -> None:
        """Answer the next requests, of one kind if given, with 429 and the time after which to retry."""
        self._limited = (requests, seconds, kind)

    def refusal(self, kind: str) -> float | None:
        """Count a request. If it exceeds the limit, return the seconds after which to retry."""
        with self._lock:
            left, seconds, limited = self._limited
            if left and limited in ("", kind):
                self._limited = (left - 1, seconds, limited)
                self.requests["limited"] += 1
                return seconds
            self.requests[kind] += 1
            return None

    def _signature(self, path: str, expires: str) -> str:
        return hmac.new(self._key, f"{path}\n{expires}".encode(), "sha256").hexdigest()

    def _answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode()
        found = ((kind, route.fullmatch(path)) for kind, route in _ROUTES.items())
        kind, match = next(((kind, match) for kind, match in found if match), ("", None))
        if match is None:
            return JSONResponse({"error": "Not found"}, 404)
        if (seconds := self.refusal(kind)) is not None:
            window = {"RateLimit": f'"{kind}";r=0;t={seconds:.0f}', "Retry-After": f"{seconds:.0f}"}
            policy = {"RateLimit-Policy": f'"fixed window";"{kind}";q=3000;w=300'}
            return PlainTextResponse("Too many requests", 429, {**window, **policy})
        try:
            answer: Response = getattr(self, f"_{kind}")(request, *(unquote(part or "") for part in match.groups()))
            return answer
        except _Refused as refused:
            status, code, message = refused.args
            headers = {"X-Error-Code": code} if code else {}
            return JSONResponse({"error": message}, status, {**headers, "X-Error-Message": message})

    def _api(self, request: Request, name: str, revision: str) -> Response:
        commit = self._commit(request, name, revision or "main")
        repository = self.repositories[name]
        entries = self._entries(name, commit, "", recursive=True)
        siblings = [{"rfilename": entry["path"]} for entry in entries if entry["type"] == "file"]
        answer = {"id": name, "sha": commit, "private": repository.private, "siblings": siblings}
        return JSONResponse({**answer, "gated": "auto" if repository.gated else False, "tags": [], "downloads": 0})

    def _tree(self, request: Request, name: str, revision: str, path: str) -> Response:
        commit, query = self._commit(request, name, revision), request.query_params
        entries = self._entries(name, commit, path, recursive=query.get("recursive", "").lower() in ("true", "1"))
        return self._page(request, entries)

    def _page(self, request: Request, entries: list[dict[str, Any]]) -> Response:
        query = request.query_params
        start, page = int(query.get("cursor", 0)), min(int(query.get("limit", self.page)), self.page)
        more = request.url.include_query_params(cursor=start + page)
        headers = {"Link": f'<{more}>; rel="next"'} if start + page < len(entries) else {}
        return JSONResponse(entries[start : start + page], headers=headers)

    def _resolve(self, request: Request, name: str, revision: str, path: str) -> Response:
        commit = self._commit(request, name, revision)
        if self.repositories[name].gated and self._token(request) != self.token:
            status = 403 if self._token(request) else 401
            raise _Refused(status, "GatedRepo", f"Access to dataset {name} is restricted.")
        file = self._file(name, commit, path)
        place = f"{name}/{commit}/{quote(path)}"
        headers = {"X-Repo-Commit": commit, "X-Linked-Size": str(file.stat().st_size)}
        if file.stat().st_size < self.large:
            etag = f'"{_blob(file.read_bytes())}"'
            headers |= {"Location": f"/api/resolve-cache/datasets/{place}?{urlencode({'etag': etag})}", "ETag": etag}
            return PlainTextResponse("Temporary Redirect", 307, headers)
        headers |= {"Location": self._link(place), "X-Linked-Etag": f'"{_sha(file)}"'}
        return PlainTextResponse("Found. Redirecting", 302, headers)

    def _link(self, place: str) -> str:
        """A signed URL."""
        expires = str(time.time() + self.link_seconds)
        signed = urlencode({"Expires": expires, "Signature": self._signature(f"/signed/{place}", expires)})
        return f"{self._links}/signed/{place}?{signed}"

    def _small(self, request: Request, name: str, commit: str, path: str) -> Response:
        file = self._file(name, self._commit(request, name, commit), path)
        return FileResponse(file, headers={"X-Repo-Commit": commit, "ETag": f'"{_blob(file.read_bytes())}"'})

    def _signed(self, request: Request, name: str, commit: str, path: str) -> Response:
        if "Authorization" in request.headers:
            raise _Refused(400, "", "Only one auth mechanism allowed")
        expires, signature = (request.query_params.get(each, "0") for each in ("Expires", "Signature"))
        wanted = self._signature(request.scope["raw_path"].decode(), expires)
        if not hmac.compare_digest(signature, wanted) or float(expires) < time.time():
            raise _Refused(403, "", "Request has expired")
        file = self._file(name, commit, path)
        return FileResponse(file, headers={"ETag": f'"{_sha(file)}"'})

    def _bucket(self, request: Request, name: str) -> Response:
        bucket = self._seen(request, name)
        sizes = [(self.directory / name / "contents" / content).stat().st_size for content in bucket.files.values()]
        answer = {"id": name, "private": bucket.private, "createdAt": _DAY, "size": sum(sizes)}
        return JSONResponse({**answer, "totalFiles": len(sizes)})

    def _bucket_tree(self, request: Request, name: str, prefix: str) -> Response:
        bucket, entries = self._seen(request, name), list[dict[str, Any]]()
        for path, content in sorted(bucket.files.items()):
            if path == prefix or path.startswith(prefix and f"{prefix.rstrip('/')}/"):
                size = (self.directory / name / "contents" / content).stat().st_size
                entries.append({"type": "file", "path": path, "size": size, "xetHash": content, "uploadedAt": _DAY})
        return self._page(request, entries)

    def _bucket_file(self, request: Request, name: str, path: str) -> Response:
        content = self._seen(request, name).files.get(path)
        if content is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        file = self.directory / name / "contents" / content
        headers = {"X-Linked-Size": str(file.stat().st_size), "X-Xet-Hash": content}
        headers["X-Xet-Refresh-Route"] = f"/api/buckets/{name}/xet-read-token"
        return PlainTextResponse(
            "Found. Redirecting", 302, {**headers, "Location": self._link(f"{name}/contents/{content}")}
        )

    def _seen(self, request: Request, name: str) -> Bucket:
        """A bucket, if the request may see it."""
        token, bucket = self._token(request), self.buckets.get(name)
        if bucket is None or (bucket.private and token != self.token):
            if not token:
                raise _Refused(401, "", "Invalid username or password.")
            raise _Refused(404, "RepoNotFound", "Bucket not found")
        return bucket

    def _token(self, request: Request) -> str:
        """The request's token, "" for none. Refuse an unknown one."""
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("", self.token, self.stranger):
            raise _Refused(401, "", "Invalid credentials in Authorization header")
        return token

    def _commit(self, request: Request, name: str, revision: str) -> str:
        """The commit of a revision, if the request may see the repository."""
        token, repository = self._token(request), self.repositories.get(name)
        if repository is None or (repository.private and token != self.token):
            if not token:
                raise _Refused(401, "", "Invalid username or password.")
            raise _Refused(404, "RepoNotFound", "Repository not found")
        commit = repository.branches.get(revision, revision)
        if not re.fullmatch("[0-9a-f]{40}", commit) or not (self.directory / name / commit).exists():
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _file(self, name: str, commit: str, path: str) -> Path:
        file = self.directory / name / commit / path
        if ".." in Path(path).parts or not file.is_file():
            raise _Refused(404, "EntryNotFound", "Entry not found")
        return file

    def _entries(self, name: str, commit: str, path: str, *, recursive: bool) -> list[dict[str, Any]]:
        root = self.directory / name / commit
        if ".." in Path(path).parts or not (root / path).is_dir():
            raise _Refused(404, "EntryNotFound", f"{path} does not exist on {commit}")
        found = sorted((root / path).rglob("*") if recursive else (root / path).iterdir())
        return [self._entry(file, file.relative_to(root).as_posix()) for file in found]

    def _entry(self, file: Path, path: str) -> dict[str, Any]:
        if file.is_dir():
            return {"type": "directory", "oid": _blob(path.encode()), "size": 0, "path": path}
        size = file.stat().st_size
        if size < self.large:
            return {"type": "file", "oid": _blob(file.read_bytes()), "size": size, "path": path}
        sha = _sha(file)
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha}\nsize {size}\n".encode()
        lfs = {"oid": sha, "size": size, "pointerSize": len(pointer)}
        return {"type": "file", "oid": _blob(pointer), "size": size, "path": path, "lfs": lfs}


class _Refused(Exception):
    """An answer: its status, X-Error-Code ("" for none) and X-Error-Message."""


@functools.cache
def _sha(file: Path) -> str:
    """The SHA-256 of a file of a commit, which never changes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _blob(data: bytes) -> str:
    """The name that git gives to a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
