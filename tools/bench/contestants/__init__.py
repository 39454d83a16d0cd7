"""The loaders, a module each, and the limits of the machine.

Each loader is driven as its own documentation says, at its best; what was chosen stands in the module's docstring. A
function is one measurement and returns its figures: see tools/bench/subject.py. The functions that several loaders have
take the same arguments in each, whether they use them or not.
"""
