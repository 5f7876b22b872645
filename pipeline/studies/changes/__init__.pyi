from .changes import largest_changes as largest_changes
