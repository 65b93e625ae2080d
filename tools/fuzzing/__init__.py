"""What `tools/fuzz` and tests/test_hostile_files.py share: readers, valid small files to begin with, and damage."""
