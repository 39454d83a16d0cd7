"""A disk that fails, is full or forbidden: an error that names the file, the reason and the way out; then a resume."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mdsx.errors import ForbiddenError, MdsxError, TransportError
from mdsx.writer import Writer
from tests.conftest import Often
from tests.forks import as_another_user, forked, let_through
from tests.writer.jobs import COLUMNS, SHARD_SIZE, Contents, contents, sample, write
from tests.writer.power_cut import Job, Note, Recorder, record
from tests.writer.test_power_cut import COUNT, check, job, parts_and_merge

REASONS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES]


class Fail:
    """Fails operation number `at`, and all later ones if it `stays`."""

    def __init__(self, at: int, reason: int, stays: bool) -> None:
        self.at, self.reason, self.stays = at, reason, stays
        self.met: tuple[str, str] | None = None

    def __call__(self, number: int, what: str, path: str) -> None:
        if number == self.at or (self.stays and number > self.at):
            self.met = self.met or (what, path)
            raise OSError(self.reason, os.strerror(self.reason))

    def may_pass(self) -> bool:
        """Return whether failing is harmless: an empty folder stays, a folder exists, or one above is unreadable."""
        assert self.met is not None
        what, path = self.met
        return what in ("rmdir", "mkdir") or (path in ("", "some") and self.reason == errno.EACCES)


def attempt(work: Callable[[], object]) -> MdsxError | None:
    """Return the error that `work` ended with. Assert that none of its threads remains."""
    before = set(threading.enumerate())  # earlier tests' idle threads end after seconds
    try:
        work()
    except MdsxError as error:
        return error
    finally:
        assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("mdsx")]
    return None


def check_error(error: MdsxError, place: Path, reason: int) -> None:
    """Assert that the error has the place, the reason and advice."""
    assert isinstance(error, TransportError), error
    assert isinstance(error, ForbiddenError) == (reason == errno.EACCES)
    assert error.file is not None
    assert error.file.startswith(str(place))
    assert os.strerror(reason) in str(error)
    assert error.hint


State = tuple[Path, list[Note]]
"""What a job finds, and the cause."""

work = partial(job, count=24)  # three shards


@pytest.fixture(scope="module", params=["begins", "resumes"])
def state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> State:
    """Nothing, or what a writer left that was killed before its last shard."""
    top = tmp_path_factory.mktemp("state") / "top"
    top.mkdir()
    return top, [] if request.param == "begins" else record(work, top, die_at=".shard.00002")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    top = tmp_path_factory.mktemp("undisturbed")
    work(top)
    return contents(top)


@pytest.mark.slow_if("id == 'resumes-Input/output error-once'")
@pytest.mark.parametrize("stays", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("reason", REASONS, ids=os.strerror)
def test_a_resume_continues_after_any_failed_operation(
    state: State, reason: int, stays: bool, undisturbed: Contents, tmp_path: Path, often: Often
) -> None:
    """The test fails each operation: open, write, sync, rename, remove, create a folder, list and read."""
    every = 1 if reason == errno.EIO and not stays else often(15, long=1)
    number = random.Random(reason).randrange(every)
    while fails(tmp_path / f"{number}", state, Fail(number, reason, stays), undisturbed):
        number += every
    assert number > 50


def fails(top: Path, state: State, fail: Fail, undisturbed: Contents) -> bool:
    """Return whether there were that many operations."""
    shutil.copytree(state[0], top)
    notes = [*state[1]]
    with Recorder(top, fail, notes.append):
        error = attempt(partial(work, top))
    if fail.met is None:
        return False
    if error is None:
        assert fail.may_pass()
        assert files(contents(top)) == files(undisturbed)
    else:
        check_error(error, top / "some" / "dataset", fail.reason)
    with Recorder(top, lambda number, what, path: None, notes.append):
        work(top)
    check(notes, top, finished="some/dataset/index.json")
    assert contents(top) == undisturbed, f"{fail.met} failed"
    return True


def files(found: Contents) -> Contents:
    return {name: data for name, data in found.items() if data is not None}


@pytest.mark.slow
def test_a_resume_continues_after_a_failed_merge(tmp_path: Path, often: Often) -> None:
    rng, jobs = random.Random(1), list[Job]([partial(job, count=COUNT), parts_and_merge])
    for number, whole in enumerate(jobs):
        (top := tmp_path / f"{number}").mkdir()
        operations = len(record(whole, top))
        undisturbed = contents(top)
        for at in {*rng.sample(range(operations), often(5, long=200)), *range(operations - 9, operations - 4)}:
            (root := tmp_path / f"{number}-{at}").mkdir()
            notes: list[Note] = []
            with Recorder(root, Fail(at, errno.EIO, stays=False), notes.append):
                attempt(partial(whole, root))
            with Recorder(root, lambda number, what, path: None, notes.append):
                whole(root)
            check(notes, root)
            assert contents(root) == undisturbed, f"operation {at} failed"


# --- real causes


def outcome(root: Path, limit: int | None = None) -> MdsxError | None:
    """Return the error of a process that writes `root` with a quota of `limit` bytes per file."""

    def write_limited() -> MdsxError | None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # Python ignores SIGXFSZ
        error = attempt(lambda: write(root, COUNT))
        assert not list(root.rglob("*.mdsx-tmp"))  # now whole files have room again
        assert (root / "index.json").exists() == (error is None)
        return error

    return forked(write_limited)


def test_a_resume_continues_after_a_raised_quota(tmp_path: Path) -> None:
    """In turn, the record, a shard, the journal and the index do not fit."""
    write(tmp_path / "undisturbed", COUNT)
    sizes = {name: len(data) for name, data in files(contents(tmp_path / "undisturbed")).items() if data}
    index, shard = sizes.pop("index.json"), max(sizes.values())
    root, failed = tmp_path / "dataset", []
    for limit in (100, shard - 1, shard, index - 1):
        error = outcome(root, limit)
        assert error is not None
        check_error(error, root, errno.EFBIG)
        assert "raise the limit" in str(error)
        failed.append(Path(error.file or "").name)
    assert (failed[0], *failed[2:]) == ("writer.json", "journal.00000.json", "index.json")
    assert sizes[failed[1]] == shard
    assert outcome(root) is None
    assert contents(root) == contents(tmp_path / "undisturbed")


FULL_DISK = """
import sys
from pathlib import Path
from tests.writer.test_failing_disk import fill_and_free
fill_and_free(Path(sys.argv[1]))
"""


def test_a_resume_continues_after_a_full_disk(tmp_path: Path) -> None:
    """A real full disk, in a namespace of its own. Without namespaces, the quota above replaces it."""
    mounted = (
        f"mount -t tmpfs -o size=1m,nr_inodes=200 none {tmp_path} && exec {sys.executable} -c '{FULL_DISK}' {tmp_path}"
    )
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", mounted], capture_output=True, text=True, timeout=120)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no small disk can be made here: {done.stderr}")
    assert (done.returncode, done.stdout) == (0, "as undisturbed\n"), done.stderr


def fill_and_free(disk: Path) -> None:
    """Resume on a disk without room, then with a little more, and so on; then the same with inodes."""
    root, ballast = disk / "dataset", disk / "ballast"
    ballast.mkdir()
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    for number in range(14):
        (ballast / f"{number}").write_bytes(bytes(free // 16 if number else free - 13 * (free // 16)))
    names = os.statvfs(disk).f_favail - 3
    for number in range(names):
        os.symlink("nothing", ballast / f"name-{number}")
    errors = 0
    for freed in range(1000):
        error = attempt(lambda: write(root, COUNT))
        if error is None:
            break
        check_error(error, root, errno.ENOSPC)
        assert not (root / "index.json").exists()
        assert not list(root.rglob("*.mdsx-tmp"))
        errors += 1
        for path in [*ballast.glob("name-*")][:9]:
            path.unlink()
        if freed % 4 == 3:
            (ballast / f"{freed // 4}").unlink(missing_ok=True)
    assert errors > 8
    shutil.rmtree(ballast)
    found = contents(root)
    shutil.rmtree(root)
    write(root, COUNT)
    assert found == contents(root)
    print("as undisturbed")


def test_a_resume_continues_after_lost_permission(tmp_path: Path) -> None:
    """Permission to write and to list: a place that cannot be listed is not taken as empty."""
    write(tmp_path / "undisturbed", COUNT)
    let_through(tmp_path)
    for mode, kept in ((0o555, 200), (0o311, 400)):
        root = tmp_path / f"{mode:o}"
        root.mkdir()
        root.chmod(0o777)
        with pytest.raises(ForbiddenError, match=f"{root}.*Permission denied.*check its permissions"):
            as_another_user(partial(lose_permission, root / "dataset", mode, kept))
        before = contents(root)
        assert "dataset/index.json" not in before
        with pytest.raises(ForbiddenError):
            as_another_user(partial(write, root / "dataset", COUNT))
        assert contents(root).keys() == before.keys()
        (root / "dataset").chmod(0o755)
        assert as_another_user(partial(write, root / "dataset", COUNT)) > 0
        assert contents(root / "dataset") == contents(tmp_path / "undisturbed")


def lose_permission(root: Path, mode: int, count: int) -> None:
    with Writer(root, COLUMNS, shard_size=SHARD_SIZE) as out:
        for number in range(COUNT):
            if number == count:
                root.chmod(mode)
            out.write(sample(number))
