from .renderings import (
    csv_text as csv_text,
    latex as latex,
    markdown as markdown,
    terminal_parts as terminal_parts,
)
