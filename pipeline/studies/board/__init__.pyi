from .board import compare_below as compare_below
