"""Changes to a browser as they happen: one stream of server-sent events for each open page."""
