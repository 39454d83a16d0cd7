"""A training loop in JAX, on one or several processes. PyTorch is not needed.

Each process gives the loader its rank, and JAX makes global arrays of the batches of all processes.

    python examples/data.py write DATA
    python examples/jax_loop.py DATA RUN 127.0.0.1:8476 0 2 & python examples/jax_loop.py DATA RUN 127.0.0.1:8476 1 2
    python examples/jax_loop.py DATA RUN 127.0.0.1:8476 0 1  # after a kill, on any number of processes
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from data import EPOCHS, TOKENS, latest, publish, record
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import mdsx

GLOBAL_BATCH, SAVE = 48, 5  # samples of a step over all processes; steps between checkpoints

Parameters = dict[str, jax.Array]


def loss_of(parameters: Parameters, tokens: jax.Array) -> jax.Array:
    """Return the mean loss of each token's successor."""
    logits = jax.nn.log_softmax(parameters["embedding"][tokens[:, :-1]] @ parameters["output"])
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1).mean()


@jax.jit
def step(parameters: Parameters, tokens: jax.Array) -> tuple[Parameters, jax.Array]:
    """Return the parameters after a step of gradient descent, and the loss over all processes."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, tokens)
    return jax.tree.map(lambda value, gradient: value - gradient, parameters, gradients), loss


def main(data: str, run: str, address: str, rank: int, processes: int) -> None:
    if processes > 1:
        jax.distributed.initialize(address, processes, rank)  # on most clusters, without arguments
    whole = mdsx.Dataset(data).select(0, 960)  # all processes need equal shapes: no shorter last batch
    loader = mdsx.Loader(
        whole, GLOBAL_BATCH // processes, columns=["id", "tokens"], rank=rank, world_size=processes, num_threads=2
    )
    sharded = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    random = np.random.default_rng(0)
    shapes = {"embedding": (TOKENS, 16), "output": (16, TOKENS)}
    parameters = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    steps = 0
    if (checkpoint := latest(run)) is not None:
        parameters = dict(np.load(checkpoint / "parameters.npz"))
        saved = json.loads((checkpoint / "state.json").read_text())
        loader.load_state_dict(saved["loader"])
        steps = saved["steps"]

    while loader.epoch < EPOCHS:
        for batch in loader:
            steps += 1
            tokens = jax.make_array_from_process_local_data(sharded, batch["tokens"])
            parameters, loss = step(parameters, tokens)
            record(run, steps, batch["id"], float(loss), rank)
            if steps % SAVE == 0 and rank == 0:
                folder = Path(run) / f"step-{steps}"
                folder.mkdir(exist_ok=True)
                np.savez(folder / "parameters.npz", **{name: np.asarray(value) for name, value in parameters.items()})
                (folder / "state.json").write_text(json.dumps({"loader": loader.state_dict(), "steps": steps}))
                publish(run, folder.name)


if __name__ == "__main__":
    data, run, address, rank, processes = sys.argv[1:]
    main(data, run, address, int(rank), int(processes))
