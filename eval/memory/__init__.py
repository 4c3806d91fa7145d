"""How far peaks and requests are from measured training runs, and what constants of memory were read off."""
