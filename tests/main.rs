//! Black-box tests: each starts the built program and talks to it through its
//! real doors. Modules in reading order.

mod kit;

mod start;
