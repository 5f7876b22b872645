from .cluster import explain_sudden_end as explain_sudden_end, share_out as share_out
from .engine import (
    Engine as Engine,
    Job as Job,
    LocalEngine as LocalEngine,
    Part as Part,
    PartJob as PartJob,
    PartResult as PartResult,
    ServerEngine as ServerEngine,
)
from .opening import check as check, devices_of as devices_of, open_with as open_with
from .worker import ShippedFiles as ShippedFiles
