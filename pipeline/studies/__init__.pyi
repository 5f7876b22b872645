from .study import Command as Command, Findings as Findings, Plan as Plan, Study as Study
from .table import STUDIES as STUDIES, all_studies as all_studies
