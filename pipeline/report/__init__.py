"""How are results shown? Tables on the terminal (`table`, `comparison`, `tradeoff`), and a page (`html`)."""
