from .base import (
    Engine as Engine,
    Job as Job,
    Part as Part,
    PartJob as PartJob,
    PartResult as PartResult,
)
from .cluster import explain_sudden_end as explain_sudden_end, share_out as share_out
from .engine import (
    EngineFactory as EngineFactory,
    LocalEngine as LocalEngine,
    ServerEngine as ServerEngine,
    check_engine as check_engine,
    devices_of as devices_of,
)
from .worker import ShippedFiles as ShippedFiles
