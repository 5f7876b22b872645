"""Rerankers: models that read a query and a passage together, and score how well the passage answers."""
