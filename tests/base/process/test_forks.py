"""A forked child owns nothing of its parent's, and hooks run around each fork."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import mdsx
from mdsx.base.process.children import Owner
from tests.forks import forked

PACKAGE = Path(mdsx.__file__).parent


def test_only_the_process_that_made_it_is_the_owner() -> None:
    owner = Owner()

    def in_child() -> None:
        assert not owner.here
        own = Owner()
        assert own.here
        forked(lambda: _check(not own.here and not owner.here))

    forked(in_child)
    assert owner.here


def _check(true: bool) -> None:
    assert true


def test_owners_are_forgotten_with_their_objects() -> None:
    from mdsx.base.process import children

    owner = Owner()
    assert owner in children._owners
    remembered = weakref.ref(owner)
    del owner
    gc.collect()
    assert remembered() is None


HOOKS = """
import os
from mdsx.base.process.children import Owner, at_fork

owner, log = Owner(), []
for name in ("first", "second"):
    at_fork(before=lambda name=name: log.append(f"{name} before"),
            after_in_parent=lambda name=name: log.append(f"{name} in the parent"),
            after_in_child=lambda name=name: log.append(f"{name} in the child, {owner.here}"))
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*log, sep="; ", flush=True)
"""


def test_hooks_run_in_order_and_know_who_owns_what() -> None:
    done = subprocess.run([sys.executable, "-c", HOOKS], capture_output=True, text=True, check=True, cwd=os.getcwd())
    before = "second before; first before; "
    assert done.stdout.splitlines() == [
        before + "first in the child, False; second in the child, False",
        before + "first in the parent; second in the parent",
    ]


def test_only_the_process_package_handles_forks() -> None:
    names = {"getpid", "getppid", "register_at_fork", "parent_process"}
    users = {
        path.relative_to(PACKAGE).parts[:2]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.alias) and node.name in names)
    }
    assert users == {("base", "process"), ("base", "work")}  # which names the receiver of a descriptor
