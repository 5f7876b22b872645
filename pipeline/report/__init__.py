"""Reports: tables for the terminal and for documents; `page` holds the HTML report."""
