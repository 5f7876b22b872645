from .group_tests import (
    SMALLEST as SMALLEST,
    compare_with_rest as compare_with_rest,
    difference_tests as difference_tests,
    smallest_shown as smallest_shown,
)
from .groups import find_groups as find_groups, groups_of as groups_of
