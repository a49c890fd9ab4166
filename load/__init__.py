"""Many agents at once: how long they take, and how long they keep the event loop from others."""
