from .groups import groups_of as groups_of
