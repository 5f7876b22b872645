from .plots import (
    Curve as Curve,
)
from .plots import (
    SpeedPoint as SpeedPoint,
)
from .plots import (
    draw_curves as draw_curves,
)
from .plots import (
    draw_speeds as draw_speeds,
)
from .plots import (
    result_style as result_style,
)
from .queries import (
    Hit as Hit,
)
from .queries import (
    explain_query as explain_query,
)
from .queries import (
    read_query_data as read_query_data,
)
from .queries import (
    select_queries as select_queries,
)
from .render import facts as facts
from .render import render_page as render_page
from .render import write_page as write_page
