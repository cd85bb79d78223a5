"""Written by the build: what the extension was built from and with."""

VERSION: str
TORCH_VERSION: str
