"""Jobs as rows of the database: written, found, shown and submitted again."""
