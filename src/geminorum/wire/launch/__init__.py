"""What a CLI is started with: arguments and settings."""
