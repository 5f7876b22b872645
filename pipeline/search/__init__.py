"""Search: Faiss indexes (`faiss_index`), exact search of vectors (`exact`), and of words (`postings`)."""
