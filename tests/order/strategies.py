"""Random configurations of orders, small enough to compare completely with the reference."""

from __future__ import annotations

from hypothesis import strategies as st

from mdsx.order import Order

uint64 = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1))
near_powers_of_two = st.builds(lambda k, d: max(0, 2**k + d), st.integers(0, 8), st.integers(-1, 1))
shard_counts = st.lists(st.one_of(st.just(0), st.integers(0, 12), near_powers_of_two), max_size=12)
lane_numbers = st.one_of(st.integers(1, 9), st.integers(1, 100))
blocks = st.one_of(st.integers(1, 20), near_powers_of_two.filter(bool), st.integers(1, 10**6))


def orders(shuffle: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[Order]:
    return st.builds(
        Order,
        shard_counts,
        seed=uint64,
        epoch=uint64,
        lanes=lane_numbers,
        shuffle_block=st.one_of(st.none(), blocks),
        shuffle=st.booleans() if shuffle is None else shuffle,
    )
