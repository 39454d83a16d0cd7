"""A small training on this machine, killed and resumed: what `mdsx quickstart` runs.

`program.py` is the training, as a user of mdsx would write it. The other modules make its dataset, kill it, count what
it read, and draw a picture of that.
"""

from mdsx.quickstart.account import Account, account_of
from mdsx.quickstart.documents import write_documents
from mdsx.quickstart.lives import Life, Step
from mdsx.quickstart.picture import page

__all__ = ["Account", "Life", "Step", "account_of", "page", "write_documents"]
