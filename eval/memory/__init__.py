"""How far peaks and requests are from measured training runs, and the sources of memory constants."""
