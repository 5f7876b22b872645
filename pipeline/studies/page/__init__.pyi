from .queries import (
    Hit as Hit,
    QueryData as QueryData,
    explain_query as explain_query,
    read_query_data as read_query_data,
)
from .render import render_page as render_page, write_page as write_page
