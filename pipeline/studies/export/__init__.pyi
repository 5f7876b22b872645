from .exchange import model_index as model_index, write_mteb as write_mteb
from .tracking import WRITERS as WRITERS, figures_of as figures_of, track as track
