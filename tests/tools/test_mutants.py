"""A mutant that no test notices fails the run, unless it is explained; so does an explanation that fits no mutant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.tools import ROOT
from tools.console import Console
from tools.environment import install_missing
from tools.mutants.parts import PARTS, Part
from tools.mutants.run import EXPLAINED, Explanation, Mutant, judge, mutate, read_explanations, section
from tools.mutants.survey import function_of

PART = Part("small", ("mdsx/order/strata.py",), ("tests/order/test_strata.py",))
KILLED = Mutant("mdsx.a.f", "killed", "", "")
TYPED = Mutant("mdsx.a.f", "caught by type check", "", "")
SURVIVED = Mutant("mdsx.a.Class.f", "survived", "if a | b < c:", "if a | b <= c:")
UNREACHED = Mutant("mdsx.a.g", "no tests", "return 1", "return 2")


def test_each_part_names_files_and_tests_that_exist() -> None:
    for part in PARTS:
        assert all(list(ROOT.glob(pattern)) for pattern in part.files), part.name
        assert all((ROOT / path).exists() for path in part.tests), part.name


def test_what_nobody_noticed_or_explained_is_left() -> None:
    because = Explanation(SURVIVED.function, "b is never c", SURVIVED.was)
    outcome = judge(PART, [KILLED, TYPED, SURVIVED, UNREACHED], [because])
    assert outcome.explained == {SURVIVED: because}
    assert outcome.unexplained == [UNREACHED]
    lines = section(outcome).splitlines()
    assert lines[0] == (
        "Of the 4 mutants of the small, tests notice 1, and the type checker 1. 1 are explained, and 1 are neither."
    )
    assert lines[-1] == "| `mdsx.a.Class.f` | 1 | b is never c |"


@pytest.mark.parametrize("now", ["if a | b <= c:", None])
def test_an_explanation_fits_its_own_lines_only(now: str | None) -> None:
    because = Explanation(SURVIVED.function, "b is never c", SURVIVED.was, now)
    assert because.fits(SURVIVED)
    assert because.fits(Mutant(SURVIVED.function, "survived", SURVIVED.was, "if c:")) == (now is None)
    assert not because.fits(UNREACHED)
    any_change = Explanation(SURVIVED.function, "it runs when the module is imported")
    assert any_change.fits(SURVIVED)
    assert not any_change.fits(UNREACHED)


def test_an_explanation_of_any_function_fits_one_change_of_a_part() -> None:
    because = Explanation("*", "a check of our own", "strict=True", "strict=False")
    assert because.fits(Mutant("mdsx.a.f", "survived", "zip(a, b, strict=True)", "zip(a, b, strict=False)"))
    assert not because.fits(Mutant("mdsx.a.f", "survived", "zip(a, b, strict=True)", "zip(b, strict=True)"))


def test_the_explanations_can_be_read() -> None:
    assert all(each.function.startswith(("mdsx.", "*")) and each.why for each in read_explanations(EXPLAINED))


@pytest.mark.parametrize(
    ("name", "function"),
    [("mdsx.a.x_f__mutmut_12", "mdsx.a.f"), ("mdsx.a.xǁClassǁ_f__mutmut_1", "mdsx.a.Class._f")],
)
def test_a_mutants_function_has_its_name_in_python(name: str, function: str) -> None:
    assert function_of(name) == function


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_changed_code_is_noticed_by_the_tests_that_reach_it(tmp_path: Path) -> None:
    console = Console(live=False)
    install_missing(console, ["mutmut"])
    with console.step("mutants") as step:
        found = mutate(PART, tmp_path, step, None)
    verdicts = Counter(mutant.verdict for mutant in found)
    assert {mutant.function for mutant in found} == {"mdsx.order.strata.stratified_shares", "mdsx.order.strata._counts"}
    assert verdicts["killed"] > 20
    assert verdicts["not checked"] == verdicts["no tests"] == verdicts["suspicious"] == 0
    assert all(mutant.was != mutant.now for mutant in found if mutant.verdict == "survived")
