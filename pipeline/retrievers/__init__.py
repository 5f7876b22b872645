"""Retriever kinds: each makes a ranking of a collection, in stages.

`stage` defines a stage, `retriever` what every kind offers, `shared` the stages that all kinds have in
common. Each kind is a file of its own, which says the kind's settings and stages. A config's model section
names its kind (`ModelSettings.retriever`); nothing else in the package asks for a kind by name.
"""
