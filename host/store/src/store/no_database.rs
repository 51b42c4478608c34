//! Stores in databases, in a program that was built without the cargo feature `postgres`: there is no
//! database that could be named.

use super::{OpenOptions, Store};
use crate::database::Database;
use crate::error::OpenError;

impl Store {
    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn create_in(database: &Database, _: &OpenOptions) -> Result<Store, OpenError> {
        match database.connector {}
    }

    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn open_in(database: &Database, _: &OpenOptions) -> Result<Store, OpenError> {
        match database.connector {}
    }

    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn open_for_command(database: &Database, _: &OpenOptions) -> Result<Store, OpenError> {
        match database.connector {}
    }
}
