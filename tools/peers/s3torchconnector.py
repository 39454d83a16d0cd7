"""s3torchconnector: S3IterableDataset over whole objects in PyTorch's DataLoader. It knows no samples, only objects."""

from __future__ import annotations

import os
from typing import Any

from tools.peers import Lazy, Peer, Reading

boto3, connector, torch_data = Lazy("boto3"), Lazy("s3torchconnector"), Lazy("torch.utils.data")


class S3TorchConnector(Peer):
    name = environment = "s3torchconnector"
    title = "s3torchconnector"
    packages = ("s3torchconnector",)
    imports = ("boto3", "s3torchconnector", "torch.utils.data")
    in_bench = in_conformance = in_faults = writes = False  # it has no format
    remote = True

    def loader(self, reading: Reading) -> Any:
        """Return a loader that yields the bytes of each object."""
        bucket, _, prefix = reading.source.removeprefix("s3://").partition("/")
        found = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/")["Contents"]
        dataset = connector.S3IterableDataset.from_objects(
            [f"s3://{bucket}/{each['Key']}" for each in found],  # its own listing refuses objects without ETag
            region="us-east-1",
            endpoint=os.environ["AWS_ENDPOINT_URL"],
            transform=_read,
            enable_sharding=True,
            s3client_config=connector.S3ClientConfig(force_path_style=True),
        )
        return torch_data.DataLoader(dataset, batch_size=None, num_workers=reading.workers)


def _read(found: Any) -> bytes:
    return bytes(found.read())


PEER = S3TorchConnector()
