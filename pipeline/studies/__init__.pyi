from .study import Command as Command, Part as Part, Plan as Plan, Study as Study
from .table import STUDIES as STUDIES, all_studies as all_studies
