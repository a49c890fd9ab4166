"""The commands that move a folder to another machine and bring its changes back."""
