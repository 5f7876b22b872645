from .lint import lint_files as lint_files
from .verification import verify as verify
