"""The fleet behind the page, where there is one."""
