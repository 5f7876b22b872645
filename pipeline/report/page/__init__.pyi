from .plots import (
    Curve as Curve,
    SpeedPoint as SpeedPoint,
    draw_curves as draw_curves,
    draw_speeds as draw_speeds,
    mean_axis as mean_axis,
    result_style as result_style,
)
from .queries import Hit as Hit, explain_query as explain_query, read_query_data as read_query_data
from .render import facts as facts, render_page as render_page, write_page as write_page
