from .betting import STAKES as STAKES
from .judge_settings import JudgeSettings as JudgeSettings
from .mteb_tasks import task_of as task_of
from .plots import (
    SpeedPoint as SpeedPoint,
    draw_speeds as draw_speeds,
    mean_axis as mean_axis,
    result_style as result_style,
)
