"""The soak: `plan.py` says what happens when, `run.py` has it happen."""
