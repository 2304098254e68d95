//! Shared by the tests of this folder: the helpers of pkhash-std's tests, and a way to run the command.

// Each test file uses a part of it.
#![allow(dead_code, unused_imports)]

pub(crate) mod command;

pub(crate) use pkhash_testing::*;
