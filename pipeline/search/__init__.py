"""Search: Faiss indexes (`faiss_index`), exact search of vectors (`exact`), and BM25 (`postings`)."""
