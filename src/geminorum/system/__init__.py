"""What the machine lends: files, folders, locks and descriptors."""
