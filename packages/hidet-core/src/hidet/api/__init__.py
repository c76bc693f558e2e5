"""What users hold and call: tensors, operators on them, and graphs of symbolic ones. Above the compiler."""
