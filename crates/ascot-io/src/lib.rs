//! Streams, blocks, the memory pool, run files and the ledger of runs and switches.
