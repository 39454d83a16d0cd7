"""Count what the ranks of a training delivered, against the order."""

from __future__ import annotations

from pathlib import Path

from tools.account import NEVER, Delivered, Key, Life, Raised, count, once_each, read_log

PREDICTED = [[3, 1, 0, 2], [0, 2, 1, 3]]


def life(*delivered: Delivered, end: Key = NEVER) -> Life:
    return Life(list(delivered), end=end)


def batch(epoch: int, start: int, *ids: int, of: int | None = None) -> Delivered:
    """Return a global batch, or one rank's share of a batch of `of` samples."""
    return Delivered(epoch, start, start + (of or len(ids)), ids)


class TestCounting:
    """The samples that a training would have learned from, compared with the order."""

    def test_each_sample_of_each_epoch_once_is_exact(self) -> None:
        ranks = [
            life(batch(0, 0, 3, of=2), batch(0, 2, 2, of=2), batch(1, 0, 2, 1, 3, 0)),
            life(batch(0, 0, 1, of=2), batch(0, 2, 0, of=2)),
        ]
        found = count(ranks, PREDICTED)
        assert found.exact
        assert (found.delivered, found.counted, found.epochs) == (8, 8, 2)

    def test_samples_after_a_killed_readers_state_repeat(self) -> None:
        lives = [life(batch(0, 0, 3, 1), batch(0, 2, 0, 2), end=(0, 2)), life(batch(0, 2, 0, 2))]
        found = count(lives, PREDICTED[:1])
        assert found.exact
        assert (found.delivered, found.counted) == (6, 4)
        lives[1].delivered.clear()
        assert count(lives, PREDICTED[:1]).lost == 2

    def test_other_ranks_may_continue_from_the_state(self) -> None:
        end = (0, 2)
        before = [life(batch(0, 0, 3, of=2), end=end), life(batch(0, 0, 1, of=2), batch(0, 2, 2, of=2), end=end)]
        assert count([*before, life(batch(0, 2, 0, 2))], PREDICTED[:1]).exact

    def test_a_lost_sample_is_counted(self) -> None:
        found = count([life(batch(0, 0, 3, 1), Delivered(0, 2, 4, (0,)))], PREDICTED[:1])
        assert (found.lost, found.repeated, found.strayed) == (1, 0, 1)
        assert found.first == "epoch 0, positions 2 to 4"

    def test_a_repeated_sample_is_counted(self) -> None:
        found = count([life(batch(0, 0, 3, 1), Delivered(0, 2, 4, (0, 2, 2)))], PREDICTED[:1])
        assert (found.lost, found.repeated, found.strayed) == (0, 1, 1)

    def test_a_whole_epoch_that_is_missing_is_lost(self) -> None:
        assert count([life(batch(0, 0, 3, 1, 0, 2))], PREDICTED).lost == 4

    def test_a_wrong_sample_counts_even_if_it_comes_again(self) -> None:
        spoilt = Delivered(0, 0, 4, (3, 1, 0, 2), wrong=1)
        lives = [life(spoilt, end=(0, 0)), life(batch(0, 0, 3, 1, 0, 2))]
        found = count(lives, PREDICTED[:1])
        assert (found.wrong, found.lost, found.repeated) == (1, 0, 0)
        assert not found.exact

    def test_the_right_samples_in_other_batches_are_not_exact(self) -> None:
        found = count([life(batch(0, 0, 0, 2), batch(0, 2, 3, 1))], PREDICTED[:1])
        assert (found.lost, found.repeated, found.strayed) == (0, 0, 2)

    def test_the_order_itself_must_have_each_sample_once(self) -> None:
        assert once_each(PREDICTED, range(4))
        assert not once_each([[0, 1, 1, 3]], range(4))

    def test_an_unfinished_line_does_not_count(self, tmp_path: Path) -> None:
        lines = [batch(0, 0, 3, 1).to_line(), Raised("mdsx", "CorruptError", "x").to_line(), batch(0, 2, 0).to_line()]
        (tmp_path / "log").write_text("".join(lines)[:-4])
        found = read_log(tmp_path / "log")
        assert found.delivered == [batch(0, 0, 3, 1)]
        assert found.raised == [Raised("mdsx", "CorruptError", "x")]

    def test_samples_may_have_names(self) -> None:
        found = count([life(Delivered(0, 0, 2, ("b", "a")))], [["a", "b"]])
        assert found.exact
        assert (found.counted, found.batches) == (2, 1)
