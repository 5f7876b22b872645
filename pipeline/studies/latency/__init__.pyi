from .limits import affordable as affordable, columns_of as columns_of
from .measurement import measure as measure
from .record import read_latency as read_latency
