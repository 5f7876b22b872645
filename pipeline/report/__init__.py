"""How are results shown? Tables on the terminal (`table`)."""
