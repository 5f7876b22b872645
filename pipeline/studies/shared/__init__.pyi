from .plots import (
    SpeedPoint as SpeedPoint,
    draw_speeds as draw_speeds,
    mean_axis as mean_axis,
    result_style as result_style,
)
