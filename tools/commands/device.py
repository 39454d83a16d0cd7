"""Check and measure `device=` on a machine with a GPU: same bytes, copies beside kernels, decoding, and ResNet-50."""

from typing import Any

from tools.commands import some_of
from tools.device.run import PARTS

RUN = "tools.device.run:run"
FAILS = "a part fails"


def arguments(add: Any) -> None:
    add("--parts", default=list(PARTS), **some_of("part", list(PARTS)))
    add("--out", metavar="FILE", help="write all figures to this file, as JSON")
    add("--device", default="cuda", help="the device (default cuda); cpu tries the program where there is no GPU")
    add("--threads", type=int, metavar="N", help="threads that decode (default: as many as there are cores)")
    add("--decoder", metavar="NAME", help="of the training: pillow, torchvision, opencv (default: mdsx.Image)")
    add("--small", action="store_true", help="use little data: it tries the program, and measures nothing")
