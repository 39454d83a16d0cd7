"""The bounded cache on local disk: `cache.py` has the rules, `ledger.py` the books, `policy.py` who leaves first."""

from mdsx.storage.cache.cache import Cache, CacheKey, Verdict

__all__ = ["Cache", "CacheKey", "Verdict"]
