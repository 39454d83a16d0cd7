"""The study: pairs of trainings until the bounds are narrow, or the time is over."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tools.training import corpus as texts
from tools.training.corpus import Corpus
from tools.training.model import trained
from tools.training.orders import orders
from tools.training.setting import Setting
from tools.training.statistics import Losses, narrow


def losses_of(pair: int, setting: Setting, corpus: Corpus, device: str) -> Losses:
    """Train each shuffle's model from the initial weights of a pair; on a GPU all of them side by side."""
    found = {name: order.numbers(0, order.samples) for name, order in orders(setting, pair).items()}
    if device != "cpu":
        return dict(zip(found, trained(setting, corpus, np.stack(list(found.values())), pair, device), strict=True))
    torch.set_num_threads(1)
    return {name: trained(setting, corpus, order[None], pair, device)[0] for name, order in found.items()}


class Pairs:
    """Finished pairs, kept in a file if one is given: `file` may have those of an earlier run.

    Raise SystemExit if they are of another study.
    """

    def __init__(self, setting: Setting, corpus: Corpus, device: str, file: Path | None = None) -> None:
        self.setting, self.corpus, self.device, self._file = setting, corpus, device, file
        self.study: dict[str, Any] = {
            "setting": asdict(setting),
            "shuffles": list(orders(setting, 0)),
            "text": corpus.identity,
            "torch": torch.__version__,
            "device": device if device == "cpu" else torch.cuda.get_device_name(device),
        }
        self._found: dict[int, Losses] = {}
        if file is not None and file.exists():
            kept = json.loads(file.read_text())
            for name, value in self.study.items():
                if kept["study"].get(name) != value:
                    raise SystemExit(f"{file} has pairs of another study: {name} differs; use another file")
            self._found = {int(pair): losses for pair, losses in kept["pairs"].items()}

    @property
    def found(self) -> list[Losses]:
        """Return the losses of all finished pairs."""
        return [self._found[pair] for pair in sorted(self._found)]

    def add(self, seconds: float, jobs: int, note: Callable[[str], None] = lambda text: None) -> None:
        """Train further pairs, `jobs` at a time, until the bounds are narrow. Start none that would end too late."""
        end, longest = time.monotonic() + seconds, 0.0
        work = partial(losses_of, setting=self.setting, corpus=self.corpus, device=self.device)
        with ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else nullcontext() as pool:
            while not narrow(self.found) and (begun := time.monotonic()) + longest < end:
                pairs = [*islice((pair for pair in count() if pair not in self._found), jobs)]
                self._found |= zip(pairs, (pool.map if pool else map)(work, pairs), strict=True)
                self._keep()
                longest = max(longest, time.monotonic() - begun)
                note(f"{len(self._found)} pairs, the last in {time.monotonic() - begun:.0f} s")

    def _keep(self) -> None:
        if self._file is not None:
            pairs = {str(pair): self._found[pair] for pair in sorted(self._found)}
            new = self._file.with_name(f"{self._file.name}.new")
            new.write_text(json.dumps({"study": self.study, "pairs": pairs}, indent=1) + "\n")
            new.replace(self._file)


def text_from(file: Path | None, setting: Setting) -> Corpus:
    """Return the text in a file, or that of the packages, which is then kept there."""
    if file is not None and file.exists():
        with np.load(file) as kept:
            return Corpus(kept["training"], kept["validation"])
    found = texts.corpus(setting)
    if file is not None:
        with file.open("wb") as new:
            np.savez_compressed(new, training=found.training, validation=found.validation)
    return found
