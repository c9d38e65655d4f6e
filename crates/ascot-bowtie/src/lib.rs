//! n streams in, a function, m streams out: schedules and the engine that drives them.
