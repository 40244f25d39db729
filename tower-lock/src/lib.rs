//! A Tower layer that holds a distributed lock per request key.
