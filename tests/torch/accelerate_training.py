"""A training under Accelerate, run by the tests on several processes.

Each rank appends the samples of every step to FOLDER/<rank>.log. It resumes from a saved state if there is
one. After STEPS steps it saves its state and kills itself. With STEPS 0 it runs to the epoch's end, then validates:
FOLDER/valid has the samples that all ranks saw.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import torch
from accelerate import Accelerator

from mdsx.torch import StreamingDataLoader, StreamingDataset


def train(url: str, folder: Path, batch_size: int, steps: int) -> None:
    accelerator = Accelerator(cpu=True)
    loader = StreamingDataLoader(StreamingDataset(url, seed=4), batch_size=batch_size, drop_last=False)
    model = torch.nn.Linear(8, 1)
    prepared, model, optimizer = accelerator.prepare(loader, model, torch.optim.SGD(model.parameters(), lr=0.001))
    assert prepared is loader  # it is not prepared
    accelerator.register_for_checkpointing(loader)
    if (folder / "state").exists():
        accelerator.load_state(str(folder / "state"))
    for step, batch in enumerate(loader, 1):
        tokens = batch["tokens"].to(accelerator.device).float()
        loss = model(tokens).sum() / batch_size
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        with (folder / f"{accelerator.process_index}.log").open("a") as log:
            log.write(json.dumps(batch["id"].tolist()) + "\n")
        if step == steps:
            accelerator.save_state(str(folder / "state"))
            accelerator.wait_for_everyone()
            os.kill(os.getpid(), signal.SIGKILL)
    valid = StreamingDataLoader(StreamingDataset(url, shuffle=False), batch_size, drop_last=False)
    seen = [number for batch in valid for number in batch["id"].tolist()]
    everywhere = accelerator.gather_for_metrics(seen, use_gather_object=True)
    if accelerator.is_main_process:
        (folder / "valid").write_text(json.dumps(everywhere))
    accelerator.end_training()
    os._exit(0)  # after DDP, PyTorch 2.13 sometimes aborts at the interpreter's exit; without mdsx too
