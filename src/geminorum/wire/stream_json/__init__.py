"""What the headless CLI prints, to events."""
