"""A saved session as entries of a log, which a store keeps without reading them."""
