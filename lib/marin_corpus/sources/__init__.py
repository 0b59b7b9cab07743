"""Where documents come from: files, installed packages, downloads, hubs."""
