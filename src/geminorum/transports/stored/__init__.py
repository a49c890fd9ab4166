"""Conversations whose session is kept in a store."""
