"""Readers and writers of file formats, one for each format, whoever reads it."""
