"""The bounded cache on local disk: `cache.py` has the rules, `ledger.py` the books, `policy.py` the eviction order."""

from mdsx.storage.cache.cache import CacheDirectory, CacheKey, Verdict
from mdsx.storage.cache.locks import held
from mdsx.storage.cache.options import Cache, CacheLike
from mdsx.storage.cache.policy import Needs, ShardNames, ShardNeeds

__all__ = ["Cache", "CacheDirectory", "CacheKey", "CacheLike", "Needs", "ShardNames", "ShardNeeds", "Verdict", "held"]
