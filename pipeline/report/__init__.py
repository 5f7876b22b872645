"""Results for readers: tables (`table`, `markup`, `listings`, `tradeoff`), and a page (`html`)."""
