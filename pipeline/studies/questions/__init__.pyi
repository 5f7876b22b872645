from .questions import (
    longest_copy as longest_copy,
    read_question as read_question,
    write_questions as write_questions,
)
