from .changes import find_changes as find_changes, largest_changes as largest_changes
from .churn import churn_of as churn_of
