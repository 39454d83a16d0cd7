"""Damage in a dataset: `verify` finds it, `repair` leaves it out."""

from mdsx.checks.damage.catalog import unnamed
from mdsx.checks.damage.examine import damages_of
from mdsx.checks.damage.repair import repair
from mdsx.checks.damage.report import Repair, ShardRepair, Verification
from mdsx.checks.damage.verify import verify, verify_stored

__all__ = ["Repair", "ShardRepair", "Verification", "damages_of", "repair", "unnamed", "verify", "verify_stored"]
