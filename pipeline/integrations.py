"""What trainers of other packages take from this one; importing it imports transformers."""

from pipeline.studies.gate.training import RetrievalCallback as RetrievalCallback
