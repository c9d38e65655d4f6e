//! Indexed directories: many writers append keyed records in bursts, and a few keys are found again among
//! billions without sorting afterwards.

pub mod routing;
