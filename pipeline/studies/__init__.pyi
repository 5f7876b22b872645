from .study import Command as Command, Findings as Findings, Plan as Plan, Study as Study
from .table import STUDIES as STUDIES, add_columns as add_columns, all_studies as all_studies
