"""Bad data: a right answer or one line, for every file, text and setting that Hypothesis draws.

The number of cases is set by FUZZ_CASES: `FUZZ_CASES=100000 make test-reliability`.
"""

import math
import os
import sys

import pytest
from fuzz import PROPERTIES, reads_damaged, takes_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

FEW = 200
MANY = int(os.environ.get("FUZZ_CASES", "20000"))


def check(prove, cases: int, **options) -> int:
    """Draw at least a property's share of the cases; their number."""
    share, drawn = PROPERTIES[prove]
    done = 0

    @settings(
        max_examples=math.ceil(share * cases),
        deadline=None,  # each case has its own limit
        database=None,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    @given(st.tuples(*drawn))
    def case(arguments) -> None:
        nonlocal done
        done += 1
        prove(*arguments)

    case()
    assert done >= share * cases
    return done


@pytest.mark.medium
@pytest.mark.parametrize("prove", PROPERTIES, ids=lambda prove: prove.__name__)
def test_a_few_cases_always_the_same(prove):
    check(prove, FEW, derandomize=True, phases=[Phase.generate])


def test_the_name_of_a_column_that_is_not_utf8_is_one_line():
    reads_damaged([("", "")], ".parquet", [(48303, 128)], None)


def test_the_name_of_a_logger_that_is_no_text_is_one_line():
    takes_settings([("logger.csv.name", {"": None})])


def test_a_strategy_that_is_a_list_is_one_line():
    takes_settings([("trainer.strategy", [1])])


@pytest.mark.reliability
@pytest.mark.parametrize("prove", PROPERTIES, ids=lambda prove: prove.__name__)
def test_many_cases(prove):
    done = check(prove, MANY, print_blob=True)
    sys.stdout.write(f"\nfuzz: {prove.__name__}: {done:,} cases\n")
