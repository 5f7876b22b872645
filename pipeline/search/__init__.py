"""How is a passage found? By a Faiss index (`faiss_index`), exactly (`exact`), or by its words (`bm25`)."""
