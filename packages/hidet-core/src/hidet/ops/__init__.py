"""The operators that core ships, one file a family; each file returns its specs."""
