"""Checks of datasets, storages and machines."""
