"""Who may see the page, and who may act through it."""
