"""Pretraining of a small GPT on packed rows, by a plan: larger steps, longer rows, other sources at the end.

On the same number of ranks, a resumed run has the same losses to the last bit; on another number, the same documents in
the same steps, and losses that differ in their last digits, because sums are rounded in another order.

    python examples/pretraining.py write DATA
    torchrun --nproc-per-node 2 examples/pretrain_gpt.py DATA RUN  # kill it at any time
    torchrun --nproc-per-node 3 examples/pretrain_gpt.py DATA RUN  # it continues, on any number of ranks
    python examples/pretraining.py check DATA RUN

Rows are concatenated; a last argument `pack` fits whole documents into rows.
"""

import gc
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from data import latest, publish, record
from pretraining import ANNEAL, GPT, STOP, Kind, dataset, ids, loss_sum, plan, steps
from torch.nn.parallel import DistributedDataParallel

import mdsx
from mdsx.torch import StreamingDataLoader

SAVE, WARM_UP, PEAK = 10, 4096, 0.01  # steps between checkpoints; tokens; learning rate


def tokens_of(consumed: mdsx.Consumed) -> int:
    return sum((consumed.tokens or {}).values())


def learning_rate(tokens: int) -> float:
    """Warm up, stay, and decrease while the run anneals. It depends on tokens, so no plan and no rank changes it."""
    return PEAK * min((tokens + 1) / WARM_UP, 1, max(STOP - tokens, 0) / (STOP - ANNEAL))


def main(data: str, run: str, kind: Kind = "concat") -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else "cpu"
    loader = StreamingDataLoader(dataset(data), plan=plan(kind), epoch_steps=100)
    if rank == 0:
        print(loader.plan(until=STOP))
    torch.manual_seed(0)
    model = DistributedDataParallel(GPT().to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    if (checkpoint := latest(run)) is not None:
        saved = torch.load(checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    for parts in steps(loader):
        total = torch.zeros((), device=device)
        for number, part in enumerate(parts, 1):
            tokens, positions, labels = (part[name].to(device) for name in ("tokens", "position_ids", "labels"))
            with nullcontext() if number == len(parts) else model.no_sync():
                loss = loss_sum(model(tokens, positions), labels) / part["global_tokens"]  # of the step, over all ranks
                (loss * ranks).backward()  # DDP takes the mean
            total += loss.detach()
        consumed = loader.consumed
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(tokens_of(consumed))
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        record(run, consumed.steps, ids(parts), total.item())
        if consumed.steps % SAVE == 0 and rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "loader": loader.state_dict()}, f"{run}/step-{consumed.steps}.pt")
            publish(run, f"step-{consumed.steps}.pt")
        if tokens_of(consumed) >= STOP:
            break
    if rank == 0:
        print(loader.consumed)


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
    gc.collect()  # the model ends before its process group, see docs/trainers.md
    dist.destroy_process_group()
