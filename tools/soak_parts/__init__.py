"""What tools/soak.py is made of: `plan.py` says what happens when, `run.py` has it happen."""
