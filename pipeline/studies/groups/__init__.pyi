from .groups import find_groups as find_groups, groups_of as groups_of
