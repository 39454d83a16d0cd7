"""Each launcher's own variables give rank, world size and the node's ranks; nothing is guessed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from mdsx import UsageError
from mdsx.base.process import find_local_ranks, find_ranks, find_ranks_per_node, is_first

TORCHRUN = {
    "RANK": "9",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "16",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_RANK": "9",
    "ROLE_WORLD_SIZE": "16",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
RAY_TRAIN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1"}
PYTORCH_JOB = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": "3"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "6",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_NODE_RANK": "2",
    "OMPI_UNIVERSE_SIZE": "8",
}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_FD": "9", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM_JOB = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "7", "SLURM_TASKS_PER_NODE": "3(x2),1", "SLURM_JOB_NUM_NODES": "3"}
SBATCH = {**SLURM_JOB, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
SRUN = {
    **SLURM_JOB,
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "3(x2),1",
}
SRUN_EACH_NODE = {**SRUN, "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
SRUN_EACH_NODE.update(SLURM_STEP_NUM_TASKS="2", SLURM_STEP_TASKS_PER_NODE="1(x2)")
SALLOC_STEP = {**SBATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
SAGEMAKER = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "8"}
INDEXED_JOB = {"JOB_COMPLETION_INDEX": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "job-2"}


class Case(NamedTuple):
    environ: dict[str, str]
    ranks: tuple[int, int] | None
    here: tuple[int | None, int] = (None, 1)  # this process on its node, and how many are there


CASES = {
    "no launcher": Case({"HOME": "/root"}, None),
    "torchrun": Case(TORCHRUN, (9, 16), (1, 8)),
    "Ray Train": Case(RAY_TRAIN, (5, 8), (1, 4)),
    "Kubeflow's PyTorchJob": Case(PYTORCH_JOB, (3, 4)),
    "Open MPI": Case(OPEN_MPI, (6, 8), (2, 4)),
    "MPICH": Case(MPICH, (3, 4), (1, 2)),
    "a task of srun": Case(SRUN, (4, 7), (1, 3)),
    "the last node of srun": Case(
        {**SRUN, "SLURM_PROCID": "6", "SLURM_LOCALID": "0", "SLURM_NODEID": "2"}, (6, 7), (0, 1)
    ),
    "a batch script": Case(SBATCH, None),
    "the shell of salloc": Case(SLURM_JOB, None),
    "the shell of salloc as a step": Case(SALLOC_STEP, (0, 1), (0, 1)),
    "SageMaker": Case(SAGEMAKER, (1, 2), (0, 1)),
    "an Indexed Job with WORLD_SIZE": Case({**INDEXED_JOB, "WORLD_SIZE": "4"}, (2, 4), (0, 1)),
    "torchrun in an Indexed Job": Case({**INDEXED_JOB, **TORCHRUN}, (9, 16), (1, 8)),
    "torchrun in a PyTorchJob": Case({**PYTORCH_JOB, **TORCHRUN}, (9, 16), (1, 8)),
    "torchrun in a batch script": Case({**SBATCH, **TORCHRUN}, (9, 16), (1, 8)),
    "torchrun in a task of srun": Case({**SRUN_EACH_NODE, **TORCHRUN}, (9, 16), (1, 8)),
    "torchrun in SageMaker": Case({**SAGEMAKER, **TORCHRUN}, (9, 16), (1, 8)),
    "mpirun in a batch script": Case({**SBATCH, **OPEN_MPI}, (6, 8), (2, 4)),
    "mpirun through srun": Case({**SRUN_EACH_NODE, **OPEN_MPI}, (6, 8), (2, 4)),
    "MPI in SageMaker": Case({**SAGEMAKER, **OPEN_MPI}, (6, 8), (2, 4)),
    "PMI of srun": Case({**SRUN, "PMI_RANK": "4", "PMI_SIZE": "7"}, (4, 7), (1, 3)),
    "a batch script's WORLD_SIZE, then srun": Case({**SRUN, "WORLD_SIZE": "7"}, (4, 7), (1, 3)),
    "a world of one": Case({"WORLD_SIZE": "1"}, (0, 1)),
    "empty variables": Case({"RANK": "", "WORLD_SIZE": ""}, None),
    "the only rank of a node": Case({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None, (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_innermost_launcher_decides(name: str) -> None:
    case = CASES[name]
    assert find_ranks(case.environ) == case.ranks
    assert find_local_ranks(case.environ) == case.here


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RANK": "0"}, "RANK is 0, but WORLD_SIZE is not set.*; set WORLD_SIZE, .*give rank= and world_size="),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE is 4, but RANK is not set.*; set RANK, or initialise torch.distributed"),
        (INDEXED_JOB, "JOB_COMPLETION_INDEX is 2, but WORLD_SIZE is not set"),
        ({**INDEXED_JOB, "WORLD_SIZE": "16", "LOCAL_RANK": "0"}, "WORLD_SIZE is 16, but RANK is not set"),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_RANK is 1, but OMPI_COMM_WORLD_SIZE is not set"),
        ({**SRUN_EACH_NODE, "WORLD_SIZE": "16"}, "RANK is not set: SLURM_PROCID and SLURM_STEP_NUM_TASKS differ"),
        (
            {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"},
            "LOCAL_RANK is 2, but RANK and WORLD_SIZE are not set.*; set RANK",
        ),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE is 4, but RANK and WORLD_SIZE are not set"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, r"RANK must be below WORLD_SIZE \(found 4 of 4\)"),
        ({**SRUN, "SLURM_PROCID": "many"}, r"SLURM_PROCID: .*is not a number \(found 'many'\)"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK: .*is not a number"),
        ({**SAGEMAKER, "SM_CURRENT_HOST": "algo-3"}, "SM_HOSTS: .*'algo-3'"),
        ({**SAGEMAKER, "SM_HOSTS": "algo-1,algo-2"}, "SM_HOSTS: .*must be a JSON list"),
        ({"SM_HOSTS": '["algo-1"]'}, "SM_HOSTS: .*None"),
    ],
)
def test_half_and_invalid_sets_raise_naming_the_variables(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_ranks(environ)


@pytest.mark.parametrize(
    ("environ", "run", "node"),
    [
        ({}, True, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, True, True),
        ({"RANK": "8", "LOCAL_RANK": "0"}, False, True),
        ({"RANK": "1", "LOCAL_RANK": "1"}, False, False),
        ({"RANK": "1"}, False, False),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, False, False),
        ({"RANK": "gold"}, True, True),
        ({**SRUN, "SLURM_LOCALID": "0"}, False, True),
        (SBATCH, True, True),
    ],
)
def test_the_first_process_of_run_and_node_is_known(environ: dict[str, str], run: bool, node: bool) -> None:
    assert (is_first(environ, node=False), is_first(environ, node=True)) == (run, node)


SRUN_ALIKE = {**SRUN, "SLURM_STEP_NUM_TASKS": "9", "SLURM_STEP_TASKS_PER_NODE": "3(x3)"}
CYCLIC = {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "5"}
OTHER_NODES = {**TORCHRUN, "WORLD_SIZE": "24"}


@pytest.mark.parametrize(
    ("environ", "ranks", "expected"),
    [
        (TORCHRUN, (9, 16), 8),
        (RAY_TRAIN, (5, 8), 4),
        (OPEN_MPI, (6, 8), 4),
        (MPICH, (3, 4), 2),
        (SRUN_ALIKE, (4, 9), 3),
        (SRUN_EACH_NODE, (1, 2), 1),
        (SAGEMAKER, (1, 2), 1),
        ({**INDEXED_JOB, "WORLD_SIZE": "4"}, (2, 4), 1),
        ({**SRUN_EACH_NODE, **TORCHRUN}, (9, 16), 8),
        ({}, (0, 1), 1),
        ({}, (0, 2), None),
        (PYTORCH_JOB, (3, 4), None),  # it does not say
        (SRUN, (4, 7), None),  # the last node has one task
        (OTHER_NODES, (9, 24), None),  # two nodes of 8 are not 24
        (CYCLIC, (5, 8), None),  # the ranks of a node do not follow one another
        (TORCHRUN, (1, 2), None),  # the ranks are not the launcher's
        ({**TORCHRUN, "LOCAL_RANK": ""}, (9, 16), None),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "many"}, (9, 16), None),
    ],
)
def test_the_ranks_of_a_node_are_known_where_all_nodes_are_alike(
    environ: dict[str, str], ranks: tuple[int, int], expected: int | None
) -> None:
    assert find_ranks_per_node(environ, *ranks) == expected
