"""Server: translations over HTTP."""
