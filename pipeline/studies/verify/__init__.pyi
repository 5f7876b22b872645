from .contradictions import lint_files as lint_files
from .published_files import read_published as read_published
from .verification import verify as verify
