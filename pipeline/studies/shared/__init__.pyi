from .betting import STAKES as STAKES
from .judge_settings import JudgeSettings as JudgeSettings
from .mteb_tasks import task_of as task_of
from .plots import draw_svg as draw_svg, result_style as result_style
