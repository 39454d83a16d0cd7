"""The last module that a fork server imports: garbage collections of its children pass over all that it imported."""

import gc

gc.collect()
gc.freeze()
