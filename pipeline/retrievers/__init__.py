"""Retriever kinds: each makes a ranking of a collection, in stages, and has a file of its own.

`stage` defines a stage, `retriever` what every kind offers, `ranking` how rankings are stored.
"""
