"""Convert a dataset of MosaicML's Streaming (MDS) to one of mdsx, and read both: they have the same samples.

    pip install mdsx
    python convert_mds.py MDS OUT

The same on the command line: `mdsx convert mds MDS OUT --num-workers 8`. An MDS dataset can also be streamed where it
is, without a conversion: give its folder to mdsx.Dataset or a loader.
"""

from __future__ import annotations

import sys

import mdsx


def main(source: str, out: str) -> None:
    conversion = mdsx.convert("mds", source, out)
    print(conversion.samples, "samples:", dict(conversion.columns))
    place, copy = mdsx.Dataset(source), mdsx.Dataset(out)
    same = all(str(one) == str(other) for one, other in zip(place, copy, strict=True))
    print("the samples are the same:", same)
    print("verified:", mdsx.verify(out).ok)


if __name__ == "__main__":
    main(*sys.argv[1:])
