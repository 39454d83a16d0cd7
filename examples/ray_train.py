"""A training with Ray Train, on a number of workers that may change.

python examples/data.py write DATA
python examples/ray_train.py DATA RUN 2  # on 2 workers; kill it, or one of them, at any time
python examples/ray_train.py DATA RUN 3  # it continues, on any number of workers
python examples/ray_train.py DATA RUN 1 3  # on 1 to 3, as the cluster has room: when one dies, Ray starts them again
python examples/data.py count RUN
"""

import gc
import os
import sys
import tempfile

import torch
from data import EPOCHS, TOKENS, record
from ray import train
from ray.train.torch import TorchTrainer, get_device, prepare_model

from mdsx.torch import StreamingDataLoader, StreamingDataset

BATCH, SAVE = 16, 5  # samples per rank; steps between checkpoints


def worker(config: dict[str, str]) -> None:
    """Be one worker, in which Ray Train has started torch.distributed."""
    loop(**config)
    gc.collect()  # the model ends before its process group, see docs/trainers.md


def loop(data: str, run: str) -> None:
    loader = StreamingDataLoader(StreamingDataset(data, columns=["id", "tokens"]), BATCH, drop_last=False)
    model = torch.nn.Sequential(torch.nn.Embedding(TOKENS, 16), torch.nn.Linear(16, TOKENS))
    parallel = prepare_model(model)  # and not the loader
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    steps = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/state.pt", map_location=get_device())
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        steps = saved["steps"]

    while loader.epoch < EPOCHS:
        for batch in loader:
            steps += 1
            record(run, steps, batch["id"])
            tokens = batch["tokens"].to(get_device())
            logits = parallel(tokens[:, :-1]).flatten(0, 1)
            torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if steps % SAVE == 0:
                with tempfile.TemporaryDirectory() as folder:
                    checkpoint = None
                    if train.get_context().get_world_rank() == 0:
                        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}
                        torch.save({**state, "loader": loader.state_dict()}, f"{folder}/state.pt")
                        checkpoint = train.Checkpoint.from_directory(folder)
                    train.report({"steps": steps}, checkpoint=checkpoint)  # every worker: they wait for one another


def main(data: str, run: str, workers: str, most: str = "") -> None:
    run = os.path.abspath(run)  # the workers have another working directory
    number = (int(workers), int(most)) if most else int(workers)
    trainer = TorchTrainer(
        worker,
        train_loop_config={"data": os.path.abspath(data), "run": run},
        scaling_config=train.ScalingConfig(num_workers=number, use_gpu=torch.cuda.is_available()),
        run_config=train.RunConfig(
            name="checkpoints",
            storage_path=run,  # a start with the same name here continues
            failure_config=train.FailureConfig(max_failures=3 if most else 0),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
