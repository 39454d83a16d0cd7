"""Order version 1: the sample at each position. Pure: no I/O, no clock, no random stream, no global state.

format-spec.md specifies it; tests/vectors/order-v1.json has test vectors.

- `order`: the sample at each position of an epoch; `needs`: when each shard is needed.
- `mixture`: weighted datasets read together; `course`: the samples of all epochs of a run, and each rank's positions.
- `subset`: a part of a dataset's samples; `chosen`: samples chosen by number; `strata`: parts of every stratum;
  `excluded`: samples that a run leaves out.
- `grouping`: the samples of a window that form a group, and each rank's groups of a step; `dealing`: dividing a node's
  rows by cost; `busiest`: how unequal ranks' costs are; `bucketing`: batches of one shape; `groups`: a whole epoch of
  any of these (vectors: groups-v1.json, groups-concat-v1.json, buckets-v1.json).
- `advice`: lanes and caches that suit a run.
"""

from __future__ import annotations

from mdsx.order.advice import (
    better_lanes,
    block_bytes,
    fitting_lanes,
    lanes_for_nodes,
    own_lanes,
    room_ahead,
    shared_lanes,
    small_cache,
)
from mdsx.order.bucketing import (
    NO_BUCKET,
    Bucketing,
    Size,
    bucket_values,
    checked_batch_sizes,
    checked_sizes,
    rank_edges,
)
from mdsx.order.busiest import Busiest, BusiestRank, busiest
from mdsx.order.chosen import (
    Marks,
    bits_of,
    chosen_by_bits,
    chosen_of,
    same_samples,
    select_between,
    select_chosen,
)
from mdsx.order.course import (
    MAX_BATCH,
    MAX_WORLD_SIZE,
    Course,
    DatasetCourse,
    MixtureCourse,
    Position,
    Tick,
    lane_spread,
    lanes_read,
    rank_lanes,
)
from mdsx.order.dealing import Balance, Dealing
from mdsx.order.draws import Phases, Weight, bounds_of, exact_weight
from mdsx.order.excluded import Excluded, LeftOut
from mdsx.order.grouping import (
    GROUPS_VERSION,
    MAX_WINDOW,
    Grouping,
    Kind,
    Oversize,
    Windows,
    default_window,
    group_window,
    items_of,
    step_order,
)
from mdsx.order.groups import Groups, GroupSequence, group_positions
from mdsx.order.hashing import G, key, keys, mix64, mixed, sample_seeds
from mdsx.order.limits import MAX_LANES, MAX_PHASES, MAX_SAMPLES, integer, integers
from mdsx.order.mixture import MixtureOrder, add_phase
from mdsx.order.needs import NEVER, ShardUses, active_shards
from mdsx.order.order import ORDER_VERSION, Order, Shuffle, default_lanes
from mdsx.order.run_draws import check_whole_runs
from mdsx.order.sorting import by_value
from mdsx.order.strata import stratified_shares
from mdsx.order.subset import AllSamples, Subset, select_fraction, share_edges, shares_of
from mdsx.order.window_groups import WindowGroups

__all__ = [
    "GROUPS_VERSION",
    "MAX_BATCH",
    "MAX_LANES",
    "MAX_PHASES",
    "MAX_SAMPLES",
    "MAX_WINDOW",
    "MAX_WORLD_SIZE",
    "NEVER",
    "NO_BUCKET",
    "ORDER_VERSION",
    "AllSamples",
    "Balance",
    "Bucketing",
    "Busiest",
    "BusiestRank",
    "Course",
    "DatasetCourse",
    "Dealing",
    "Excluded",
    "G",
    "GroupSequence",
    "Grouping",
    "Groups",
    "Kind",
    "LeftOut",
    "Marks",
    "MixtureCourse",
    "MixtureOrder",
    "Order",
    "Oversize",
    "Phases",
    "Position",
    "ShardUses",
    "Shuffle",
    "Size",
    "Subset",
    "Tick",
    "Weight",
    "WindowGroups",
    "Windows",
    "active_shards",
    "add_phase",
    "better_lanes",
    "bits_of",
    "block_bytes",
    "bounds_of",
    "bucket_values",
    "busiest",
    "by_value",
    "check_whole_runs",
    "checked_batch_sizes",
    "checked_sizes",
    "chosen_by_bits",
    "chosen_of",
    "default_lanes",
    "default_window",
    "exact_weight",
    "fitting_lanes",
    "group_positions",
    "group_window",
    "integer",
    "integers",
    "items_of",
    "key",
    "keys",
    "lane_spread",
    "lanes_for_nodes",
    "lanes_read",
    "mix64",
    "mixed",
    "own_lanes",
    "rank_edges",
    "rank_lanes",
    "room_ahead",
    "same_samples",
    "sample_seeds",
    "select_between",
    "select_chosen",
    "select_fraction",
    "share_edges",
    "shared_lanes",
    "shares_of",
    "small_cache",
    "step_order",
    "stratified_shares",
]
