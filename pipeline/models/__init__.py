"""Models before they are run: their files, card, family and tokenizer."""
