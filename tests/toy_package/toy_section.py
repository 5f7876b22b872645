"""A section of configs, which its study reads."""

from pipeline.config import Section, setting


class Best(Section):
    """Which measures are shown."""

    least: float = setting(1.0, "the lowest mean that is shown", shapes="")
