"""A training run planned with a simulated clock and link: what it reads, waits for, keeps and costs, and how well it
shuffles. It downloads nothing but the index."""
