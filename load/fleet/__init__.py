"""Measures a fleet: workers as processes with homes of their own, and a PostgreSQL beside them."""
