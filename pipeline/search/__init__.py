"""How is a passage found? Faiss indexes: built, kept, searched (`faiss_index`)."""
