"""The training of the quickstart: an ordinary loop over mdsx. The model predicts each byte from the previous one.

It saves a checkpoint every few steps. A run that finds a checkpoint resumes from it, with any batch size and number of
workers. It loops over `mdsx.torch.StreamingDataLoader` if PyTorch is installed, otherwise over `mdsx.Loader`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdsx

CHECKPOINT_EVERY = 5  # steps
_BYTES = 512  # of each document
_PADDING = mdsx.Pad(_BYTES, oversize="truncate")


class NumpyModel:
    """The logits of each byte after each byte, trained by plain gradient descent."""

    def __init__(self) -> None:
        self.table = np.zeros((256, 256), np.float32)

    def train(self, batch: dict[str, Any]) -> float:
        """Take one step. Return the mean loss, in bits per byte."""
        text, lengths = batch["text"], batch["lengths"]["text"]
        there = np.arange(1, text.shape[1]) < lengths[:, None]
        before, after = text[:, :-1][there], text[:, 1:][there]
        logits = self.table[before]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        rows = np.arange(len(after))
        loss = -np.log2(shares[rows, after]).mean()
        shares[rows, after] -= 1
        gradient = np.zeros_like(self.table)
        np.add.at(gradient, before, shares)
        self.table -= 10 * gradient / np.maximum(np.bincount(before, minlength=256), 1)[:, None]
        return float(loss)

    def state(self) -> dict[str, NDArray[Any]]:
        return {"table": self.table}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        self.table = state["table"]


def torch_model() -> Any:
    """Return the same for PyTorch, with its optimizer."""
    import torch
    from torch.nn import functional

    class TorchModel:
        def __init__(self) -> None:
            self.table = torch.nn.Embedding(256, 256)
            torch.nn.init.zeros_(self.table.weight)
            self.optimizer = torch.optim.Adagrad(self.table.parameters(), lr=0.5)

        def train(self, batch: dict[str, Any]) -> float:
            text, lengths = batch["text"], batch["lengths"]["text"]
            targets = torch.where(torch.arange(text.shape[1]) < lengths[:, None], text, -100)[:, 1:]
            logits = self.table(text[:, :-1])
            loss = functional.cross_entropy(logits.transpose(1, 2), targets)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            return loss.item() / 0.6931471805599453

        def state(self) -> dict[str, NDArray[Any]]:
            sums = self.optimizer.state[self.table.weight]["sum"]
            return {"table": self.table.weight.detach().numpy(), "sum": sums.numpy()}

        def load(self, state: dict[str, NDArray[Any]]) -> None:
            with torch.no_grad():
                self.table.weight.copy_(torch.from_numpy(state["table"]))
            self.optimizer.state[self.table.weight]["sum"].copy_(torch.from_numpy(state["sum"]))

    torch.set_num_threads(1)
    return TorchModel()


def run(url: str, folder: Path, batch_size: int, workers: int, seed: int, *, torch: bool) -> None:
    """Train to the end of the epoch. After each step, print a line of JSON, and wait for a line: a killed process has
    done no step that nobody saw."""
    options: dict[str, Any] = {"batching": _PADDING, "drop_last": False, "num_workers": workers}
    dtypes = {"text": "int64"}  # embeddings need it
    if torch:
        from mdsx.torch import StreamingDataLoader, StreamingDataset

        model: Any = torch_model()
        loader: Any = StreamingDataLoader(StreamingDataset(url, seed=seed, dtypes=dtypes), batch_size, **options)
    else:
        model = NumpyModel()
        loader = mdsx.Loader(url, batch_size, seed=seed, dtypes=dtypes, **options)
    checkpoint, step = folder / "checkpoint.npz", 0
    if checkpoint.exists():
        with np.load(checkpoint) as saved:
            model.load(dict(saved))
            progress = json.loads(bytes(saved["progress"]))
        loader.load_state_dict(progress["data"])
        step = progress["step"]
    for batch in loader:
        loss = model.train(batch)
        step += 1
        if step % CHECKPOINT_EVERY == 0:
            progress = {"step": step, "data": loader.state_dict()}
            data = np.frombuffer(json.dumps(progress).encode(), np.uint8)
            partial = folder / "partial.npz"  # a kill meanwhile leaves the previous checkpoint
            np.savez(partial, progress=data, **model.state())
            os.replace(partial, checkpoint)
        print(json.dumps({"step": step, "loss": loss, "samples": batch["id"].tolist()}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    run(**{**given, "folder": Path(given["folder"])})
