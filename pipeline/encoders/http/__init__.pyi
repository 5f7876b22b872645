from .client import TRIES as TRIES, Limits as Limits, RequestSize as RequestSize
from .grading import read_grade as read_grade
