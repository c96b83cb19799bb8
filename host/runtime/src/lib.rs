//! Pool, budget and scaling decisions, without I/O.
