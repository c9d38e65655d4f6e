//! Arithmetic of data movement: volumes, hosts, plans, accounts, reports.
