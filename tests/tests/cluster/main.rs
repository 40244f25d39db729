//! Tests of what only a Redis Cluster can do to a lock: slots that move, masters that change.

mod atomic;
mod down;
mod failover;
mod gaps;
mod half_moved;
mod kinds;
mod moves;
mod one_node;
mod replicas;
mod strangers;
mod subscriptions;
mod undone;
