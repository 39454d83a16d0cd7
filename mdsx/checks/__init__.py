"""What examines: datasets, storages and machines."""
