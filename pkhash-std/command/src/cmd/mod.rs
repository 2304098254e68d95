//! One file for each command.

pub(crate) mod add;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod compact;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod get;
pub(crate) mod in_set;
pub(crate) mod ls;
pub(crate) mod merge;
pub(crate) mod prefix;
pub(crate) mod range;
pub(crate) mod stats;
pub(crate) mod verify;
