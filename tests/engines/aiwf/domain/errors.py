"""A stand-in for the engine's module of the same name: what the page "Inside aiwf" imports."""


class ProviderError(Exception):
    """What the engine catches around every provider."""
