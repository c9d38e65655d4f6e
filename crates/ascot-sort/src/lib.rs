//! Jobs on records larger than memory: sort, merge, check, generate.
