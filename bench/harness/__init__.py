"""The bench: measures Ascot and its peers on the same data, memory and volume (see bench/README.md)."""
