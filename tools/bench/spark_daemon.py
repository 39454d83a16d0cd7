"""What Spark forks its Python workers from, with mosaicml-streaming imported: `spark.python.daemon.module`.

Its import needs a step of its own (see `tools/peers/mosaicml.py`), and takes seconds that are then not measured.
"""

from __future__ import annotations

from pyspark.daemon import manager

from tools.peers.mosaicml import PEER

if __name__ == "__main__":
    PEER.warm()
    manager()
