//! Tests that really are about time. They run alone, one after the other, after all others, and compare with something
//! that is measured in the same moment.

mod dropped;
mod locked_rows;
