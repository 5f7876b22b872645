"""The version of the installed distribution."""

from importlib import metadata

from pipeline.core.installation import DISTRIBUTION

__version__ = metadata.version(DISTRIBUTION)
