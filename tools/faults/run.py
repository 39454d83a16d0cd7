"""Runs loaders through the cases, and writes a table and the errors that they raised.

In a case something breaks, a loader reads, and reads again when the fault is over.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tools import pages
from tools.account import lost_and_repeated
from tools.console import Console, temporary_directory
from tools.environment import install_missing
from tools.fault_proxy import Proxy, flip
from tools.faults.cases import CASES, DATA, LIMIT, Case
from tools.pages import measured_on, versions
from tools.peers import NAMES, peer
from tools.processes import ROOT, Call, CallFailed, OutOfTime, stream
from tools.servers.s3 import S3Server

_WORKERS = 2
_BUCKET = "faults"
_SHARD = 4  # which one is broken
_STUFFING = b"xxxxxxxx"  # in the texts of the samples
_FEW = 20
_WIDTH = 200  # of an error in the documentation
_TEMPORARY = re.compile(r"/\S*/mdsx-faults-[^/]+/\d+")


def run(given: argparse.Namespace) -> int:
    """Return 1 if mdsx broke a promise. Everything it started has ended then."""
    console = Console()
    found: Results = {}
    names = [name for name in given.loaders or NAMES if peer(name).in_faults]
    missing = install_missing(console, [peer(name).environment for name in names])
    with temporary_directory("mdsx-faults-") as directory, loaders_in(directory) as loaders:
        for name in (name for name in names if peer(name).environment not in missing):
            with console.step(f"{peer(name).title} in faults") as step:
                try:
                    for case in CASES:
                        if case.concerns(peer(name)) and case.name in (given.cases or [case.name]):
                            both = found.setdefault(name, {})[case] = loaders.run(name, case)
                            step.note(f"{case.title}: {'; again: '.join(both.words(case))}", milestone=True)
                except CallFailed as error:
                    step.passed, step.result = False, str(error)
    print(table(found) + "\n" + details(found))
    if given.docs:
        page = ROOT / "docs" / "reliability.md"
        for part, text in (("table", table(found)), ("details", details(found)), ("versions", _versions(found))):
            pages.put_between_marks(page, "faults", part, text)
    return int(not all(both.kept() for both in found.get("mdsx", {}).values()))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run. `named`: whether an error about a shard names it."""

    wrong: int = 0
    lost: int = 0
    repeated: int = 0
    hung: bool = False
    error: str = ""
    named: bool = False
    read: int = 0

    @property
    def word(self) -> str:
        parts = [f"{count} {word}" for count, word in ((self.wrong, "wrong"), (self.repeated, "repeated")) if count]
        if self.hung:
            parts.append("hang")
        elif self.error:
            parts.append("error" if self.named else "error without a place")
        elif self.lost:
            parts.append(f"{self.lost} lost")
        return ", ".join(parts) or "exact"


class Found(NamedTuple):
    first: Outcome
    again: Outcome

    def words(self, case: Case) -> tuple[str, str]:
        """The words for the table. If a writer failed, the first is what a reader then finds."""
        first = self.first.word
        if case.where == "writer" and not self.first.hung:
            incomplete = f"{self.first.read} of {DATA.samples} samples as a whole dataset"
            first = "no dataset" if self.first.error else incomplete
        return first, self.again.word

    def kept(self) -> bool:
        """What mdsx promises: nothing wrong, no hang, an error that names its place, and exact after the fault."""
        return self.first.word in ("exact", "error") and self.again.word == "exact"


Results = dict[str, dict[Case, Found]]
"""By loader and case."""


@dataclass
class Loaders:
    """Loaders whose datasets are in `directory`, and on the S3 server behind `proxy`. Make it with `loaders_in`."""

    directory: Path
    proxy: Proxy
    limit: float
    _runs: int = 0

    def run(self, loader: str, case: Case) -> Found:
        """Raise CallFailed if its dataset cannot even be written."""
        stored = self._stored(loader)
        if not stored.exists():
            _, error, _ = self._call(loader, "prepare", directory=str(stored))
            if error:
                raise CallFailed(error)
        self.proxy.clear()
        return self._write(loader, case) if case.where == "writer" else self._read(loader, case)

    def _read(self, loader: str, case: Case) -> Found:
        stored, cache = self._stored(loader), self._scratch()
        shards, trailer = peer(loader).shards(stored), peer(loader).trailer
        shard = shards[_SHARD]
        remote = f"s3://{_BUCKET}/{loader}" if peer(loader).remote else ""
        kill = case.where == "worker"
        name = name_among(shards, shard)
        epoch = partial(self._epoch, loader, cache, stored.parent, name, remote=remote, workers=_WORKERS * kill)
        if case.where == "cached":
            epoch()
            copies = [path for path in cache.rglob("*") if path.is_file() and _STUFFING in path.read_bytes()]
            with flipped(sorted(copies)[_SHARD]):
                return Found(epoch(), epoch())
        fault = case.fault
        if case.where == "transit":
            fault = flip(place_of(whole := shard.read_bytes(), trailer) / len(whole))
        if fault is not None:
            self.proxy.add(fault, key=f"*/{shard.relative_to(stored)}", times=case.times)
        with flipped(shard, trailer) if case.where == "stored" else nullcontext():
            first = epoch(kill_worker=True) if kill else epoch()
        self.proxy.clear()
        return Found(first, epoch())

    def _write(self, loader: str, case: Case) -> Found:
        """Read what a failed writer left; then write again in the same place, and read that."""
        cache, datasets = self._scratch(), self._scratch()
        outcomes = []
        for deed in (case.deed, ""):
            place = str(datasets / DATA.name)
            _, error, hung = self._call(loader, "write", directory=place, shard=DATA.shards[0], deed=deed)
            found = self._epoch(loader, cache, datasets)
            outcomes.append(Outcome(error=error, hung=hung, named=True) if error and not deed else found)
        return Found(*outcomes)

    def _epoch(self, loader: str, cache: Path, datasets: Path, shard: str = "", **how: Any) -> Outcome:
        """Read an epoch. An error must name the `shard`, unless a worker was killed."""
        ids, error, hung = self._call(loader, "read", directory=str(cache), datasets=str(datasets), **how)
        wanted = Counter(DATA.ids)
        wrong = sum(count for number, count in ids.items() if number not in wanted)
        lost, repeated = (each - wrong for each in lost_and_repeated(ids, wanted))
        named = shard in error or "kill_worker" in how
        return Outcome(wrong, max(lost, 0), repeated, hung, error, named, ids.total())

    def _call(self, loader: str, function: str, **arguments: Any) -> tuple[Counter[int], str, bool]:
        """Return the ids of the samples that were read, the error that ended it, if any, and whether it hung."""
        scratch, ids = self._scratch(), Counter[int]()
        what = Call(f"tools.faults.cases:{function}", {"loader": loader, **arguments}, peer(loader).environment)
        try:
            for some in stream(what, scratch=scratch, limit=self.limit):
                ids.update(some or ())
        except CallFailed as error:
            return ids, str(error), isinstance(error, OutOfTime)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return ids, "", False

    def _scratch(self) -> Path:
        self._runs += 1
        path = self.directory / f"{self._runs:03}"
        path.mkdir()
        return path

    def _stored(self, loader: str) -> Path:
        return self.directory / "s3" / _BUCKET / loader / DATA.name


@contextmanager
def loaders_in(directory: Path, limit: float = LIMIT) -> Iterator[Loaders]:
    """Serve the loaders' datasets while the context lasts."""
    with S3Server(directory / "s3") as server, Proxy(server) as proxy:
        server.make_bucket(_BUCKET)
        with patch.dict(os.environ, {**proxy.env(), "S3_ENDPOINT_URL": proxy.endpoint}):
            yield Loaders(directory, proxy, limit)


def name_among(shards: Sequence[Path], shard: Path) -> str:
    """The shortest end of a shard's path that no other shard has."""
    ends = (shard.parts[-length:] for length in range(1, len(shard.parts)))
    return "/".join(next(end for end in ends if sum(each.parts[-len(end) :] == end for each in shards) == 1))


def place_of(whole: bytes, trailer: int = 0) -> int:
    """The byte of a file to damage: in a sample's text, or in the middle if the file is compressed. The `trailer` at
    its end has no samples.

    Parquet has some texts uncompressed too, but those are statistics.
    """
    places = [found.start() for found in re.finditer(_STUFFING, whole)]
    return places[len(places) // 2] if len(places) > _FEW else (len(whole) - trailer) // 2


@contextmanager
def flipped(path: Path, trailer: int = 0) -> Iterator[None]:
    whole = path.read_bytes()
    place = place_of(whole, trailer)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        yield
    finally:
        if path.exists():
            path.write_bytes(whole)


def _versions(names: Iterable[str]) -> str:
    found = versions(name for name in names if name != "mdsx")
    return f"{measured_on().strip()} {', '.join(f'{name} {number}' for name, number in found.items())}.\n"


def table(found: Results) -> str:
    """A line for each fault and a column for each loader: the outcome under the fault; then after it."""

    def cell(name: str, case: Case) -> str:
        return "; then ".join(dict.fromkeys(found[name][case].words(case))) if case in found[name] else ""

    rows = [[case.title, *(cell(name, case) for name in found)] for case in CASES]
    return pages.table(["", *(peer(name).title for name in found)], [row for row in rows if any(row[1:])])


def details(found: Results) -> str:
    """The errors, in the loaders' own words: the first line, without characters that would break a table."""
    lines = []
    for name, outcomes in found.items():
        lines += [f"### {peer(name).title} in faults", ""]
        for case, both in outcomes.items():
            errors = [each.error.strip().partition("\n")[0] for each in both if each.error]
            short = [
                _TEMPORARY.sub("...", error.replace(f"{ROOT}/", "")).replace("`", "'").replace("|", "/")[:_WIDTH]
                for error in errors
            ]
            if short:
                lines.append(f"- {case.title}: {'; then '.join(f'`{error}`' for error in dict.fromkeys(short))}")
        lines.append("")
    return "\n".join(lines)
