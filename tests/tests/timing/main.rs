//! Tests that really are about time. They run one after the other, after all other tests, and compare with something that
//! is measured in the same moment.

mod dropped;
mod locked_rows;
