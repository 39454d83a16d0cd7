"""This process's rank in its run and on its node, from the launcher's environment variables.

Launchers nest: torchrun runs in a Slurm task, `mpirun` in a Kubernetes pod. The innermost one starts the training
processes, so it decides. These functions read only the mapping that they are given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mdsx.errors import UsageError, shown

Environment = Mapping[str, str]


class _Names(NamedTuple):
    """The variables of a launcher."""

    rank: str
    world_size: str
    local_rank: str = ""
    local_world_size: str = ""
    only_with: str = ""
    unless: str = ""


_LAUNCHERS = (  # the innermost first
    # torchrun, Accelerate, DeepSpeed, Ray Train, SageMaker's torch_distributed; Kubeflow, without the node's ranks
    _Names("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    # Open MPI, also in Kubeflow's MPIJob and in SageMaker
    _Names("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    # MPICH, Intel MPI
    _Names("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # Slurm: a batch script and salloc's shell have SLURM_PROCID and SLURM_NTASKS too, but are not tasks of a step
    _Names(
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        only_with="SLURM_STEP_NUM_TASKS",
    ),
    # SageMaker without a launcher: one process on each host
    _Names("SM_CURRENT_HOST", "SM_HOSTS", only_with="SM_HOSTS"),
    # An Indexed Job of Kubernetes: one process in each pod; with LOCAL_RANK, several.
    _Names("JOB_COMPLETION_INDEX", "WORLD_SIZE", only_with="JOB_COMPLETION_INDEX", unless="LOCAL_RANK"),
)


class _Said(NamedTuple):
    """What a launcher's variables say; None for those that are not set."""

    names: _Names
    rank: int | None
    world_size: int | None
    local_rank: int | None
    local_world_size: int | None


def find_ranks(environ: Environment) -> tuple[int, int] | None:
    """Return (rank, world size) from the innermost launcher, or None without a launcher.

    Raises:
        UsageError: A variable is invalid or missing, or the launchers contradict each other.
    """
    halves: list[_Said] = []
    nodes: list[_Said] = []  # launchers that only name the node's ranks
    for said in _all(environ):
        if said.rank is None or said.world_size is None:
            (nodes if (said.rank, said.world_size) == (None, None) else halves).append(said)
            continue
        for half in halves:
            if half.rank not in (None, said.rank) or half.world_size not in (None, said.world_size):
                raise _half(environ, half, f"{said.names.rank} and {said.names.world_size} differ from it")
        if said.rank >= said.world_size:
            raise UsageError(
                f"{said.names.rank} must be below {said.names.world_size}",
                found=f"{said.rank} of {said.world_size}",
            )
        return said.rank, said.world_size
    for half in halves:
        if half.world_size != 1:
            raise _half(environ, half, "a guess would read samples twice")
    for said in () if halves else nodes:
        if said.local_rank or (said.local_world_size or 1) > 1:  # there are other processes
            name = said.names.local_rank if said.local_rank else said.names.local_world_size
            missing = f"{said.names.rank} and {said.names.world_size}"
            message = f"{name} is {environ[name]}, but {missing} are not set: a guess would read samples twice"
            raise UsageError(message, hint=_way_out(missing))
    return (0, 1) if halves else None


def find_local_ranks(environ: Environment) -> tuple[int | None, int]:
    """Return this process's rank on its node and the node's number of processes; (None, 1) if unknown."""
    try:
        for said in _all(environ):
            if said.local_world_size:
                return said.local_rank, said.local_world_size
    except UsageError:  # `find_ranks` raises it
        pass
    return None, 1


def find_ranks_per_node(environ: Environment, rank: int, world_size: int) -> int | None:
    """Return the number of processes per node, as the launcher of process `rank` of `world_size` says.

    Return None if the launcher does not say it, if nodes have different numbers of processes, or if the ranks of a node
    are not consecutive. Each process checks only what the variables of its own node show.
    """
    try:
        for said in _all(environ):
            if said.local_world_size:
                here, local_rank = said.local_world_size, said.local_rank
                if (said.rank, said.world_size) != (rank, world_size) or world_size % here or rank % here != local_rank:
                    return None
                nodes = _number(environ, "GROUP_WORLD_SIZE") if said.names.rank == "RANK" else None
                listed = environ.get("SLURM_STEP_TASKS_PER_NODE", "") if said.names.rank == "SLURM_PROCID" else ""
                alike = {int(tasks) for tasks in re.findall(r"(\d+)(?:\(x\d+\))?", listed)} <= {here}
                return here if alike and nodes in (None, world_size // here) else None
    except UsageError:  # `find_ranks` raises it
        pass
    return 1 if world_size == 1 else None


def is_first(environ: Environment, *, node: bool) -> bool:
    """Return whether this process is the first of its run, or of its `node`; True if unknown."""
    try:
        for said in _all(environ):
            run, local = said.rank, said.local_rank
            for number in (local, run) if node else (run, local):
                if number is not None:
                    return number == 0
    except UsageError:  # `find_ranks` raises it
        pass
    return True


def _all(environ: Environment) -> Iterator[_Said]:
    """Yield the values of each launcher that has set a variable."""
    for names in _LAUNCHERS:
        if (names.only_with and not environ.get(names.only_with)) or environ.get(names.unless):
            continue
        if names.world_size == "SM_HOSTS":
            said = _Said(names, *_hosts(environ), local_rank=0, local_world_size=1)
        elif names.rank == "JOB_COMPLETION_INDEX":
            said = _Said(names, _number(environ, names.rank), _number(environ, names.world_size), 0, 1)
        else:
            rank, world_size, local_rank = (_number(environ, name) for name in names[:3])
            tasks = names.local_world_size
            here = _tasks_here(environ) if tasks == "SLURM_STEP_TASKS_PER_NODE" else _number(environ, tasks)
            said = _Said(names, rank, world_size, local_rank, here)
        if any(number is not None for number in said[1:]):
            yield said


def _number(environ: Environment, name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError("the environment variable is not a number", place=name, found=shown(text))
    return int(text)


def _tasks_here(environ: Environment) -> int | None:
    """Return the tasks on this node from Slurm's list of all nodes: "4(x2),1" is 4, 4, 1."""
    node = _number(environ, "SLURM_NODEID")
    for tasks, nodes in re.findall(r"(\d+)(?:\(x(\d+)\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", "")):
        if node is not None and (node := node - int(nodes or 1)) < 0:
            return int(tasks)
    return None


def _hosts(environ: Environment) -> tuple[int, int]:
    """Return this host's index among SageMaker's hosts, and their number."""
    try:
        hosts = json.loads(environ["SM_HOSTS"])
        return hosts.index(environ.get("SM_CURRENT_HOST")), len(hosts)
    except (AttributeError, TypeError, ValueError):
        raise UsageError(
            "the environment variable must be a JSON list that contains SM_CURRENT_HOST",
            place="SM_HOSTS",
            found=f"{shown(environ['SM_HOSTS'])} and {shown(environ.get('SM_CURRENT_HOST'))}",
        ) from None


def _half(environ: Environment, half: _Said, reason: str) -> UsageError:
    given = half.names.rank if half.rank is not None else half.names.world_size
    missing = half.names.world_size if half.rank is not None else half.names.rank
    return UsageError(
        f"{given} is {environ.get(given)}, but {missing} is not set: {reason}",
        hint=_way_out(missing),
    )


def _way_out(missing: str) -> str:
    return f"set {missing}, or initialise torch.distributed before the first batch, or give rank= and world_size="
