from .client import TRIES as TRIES
from .client import Limits as Limits
from .client import RequestSize as RequestSize
from .grading import read_grade as read_grade
