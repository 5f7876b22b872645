from .listings import collection_view as collection_view
from .renderings import (
    csv_text as csv_text,
)
from .renderings import (
    latex as latex,
)
from .renderings import (
    markdown as markdown,
)
from .renderings import (
    terminal_parts as terminal_parts,
)
