"""Shares of tokens over many tokens, without data: each within its bound. The tool does the same for 10^9."""

from tools.token_shares import SOURCES, shares


def test_shares_are_within_their_bounds() -> None:
    found = list(shares(SOURCES, 10**7))
    assert len(found) == 2 * len(SOURCES)
    for each in found:
        assert abs(each.error) < each.bound
