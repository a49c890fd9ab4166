"""What people run. Each app uses only the public names of the library."""
