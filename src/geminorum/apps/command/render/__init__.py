"""What people see: events, tables, Markdown, help pages; and the only way out, stdout."""
