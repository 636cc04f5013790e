"""Python tools that make many small immutable records cheap."""
