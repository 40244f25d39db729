//! The examples of the attribute's manual, as tests. They are no tests of `lock-macros`, because what a proc-macro crate
//! uses in its tests is built a second time.
#![doc = include_str!("../../../src/manual.md")]
