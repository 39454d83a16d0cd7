"""Hypothesis counts no time here: the machine may be busy with other things."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
