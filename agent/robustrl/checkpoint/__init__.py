"""Checkpoints as folders of files: complete or absent, never torn, checked by digest wherever they travel."""
