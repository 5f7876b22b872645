"""Readers of collections, one file for each layout."""
