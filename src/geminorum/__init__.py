"""Drive Gemini as an agent: one typed stream of events, whichever door the prompt goes through."""

from geminorum._version import __version__ as __version__
