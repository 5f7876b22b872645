from .limits import (
    Limit as Limit,
    affordable as affordable,
    columns_of as columns_of,
    pareto_front as pareto_front,
)
from .measurement import measure as measure
from .record import LatencyRecord as LatencyRecord, read_latency as read_latency
