"""A small training on this machine, killed and resumed: what `mdsx quickstart` runs.

`program.py` is the training, as a user of mdsx would write it. The rest makes its dataset, kills it, and counts what it
has read.
"""

from mdsx.quickstart.account import Account, account_of
from mdsx.quickstart.documents import write_documents
from mdsx.quickstart.lives import SHUFFLE, Life, Step

__all__ = ["SHUFFLE", "Account", "Life", "Step", "account_of", "write_documents"]
