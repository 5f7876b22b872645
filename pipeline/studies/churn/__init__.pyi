from .churn import churn_of as churn_of
