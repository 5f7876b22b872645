from .changes import churn_of as churn_of, find_changes as find_changes
