"""What a model is, before it is run: its files, card, family and tokenizer."""
