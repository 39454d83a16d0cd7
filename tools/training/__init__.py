"""Whether a shuffle costs loss: small language models trained on real text (`python3 -m tools training`)."""
