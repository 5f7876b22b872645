"""Retriever kinds: each makes a ranking of a collection, in stages.

`stage` defines a stage, `retriever` what every kind offers, `shared` the stages that all kinds have in
common. Each kind has a file of its own. The class of a config's model section names the kind
(`ModelSettings.retriever`); nothing else in the package asks for a kind by name.
"""
