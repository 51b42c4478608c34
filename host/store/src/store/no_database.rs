//! Stores in databases, in a program that was built without the cargo feature `postgres`: there is no
//! database that could be named.

use std::path::Path;

use super::{MoveSummary, OpenOptions, Store};
use crate::backup::RestoreSummary;
use crate::database::Database;
use crate::error::OpenError;
use crate::fjall::DirectoryLock;
use crate::operation::{Progress, VaultError};

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

    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn move_to(
        &self,
        database: &Database,
        _: &OpenOptions,
        _: &mut Progress<'_>,
    ) -> Result<MoveSummary, VaultError> {
        match database.connector {}
    }

    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn move_back(
        _: &DirectoryLock,
        database: &Database,
        _: &OpenOptions,
        _: &mut Progress<'_>,
    ) -> Result<Option<MoveSummary>, VaultError> {
        match database.connector {}
    }

    /// See the other build.
    ///
    /// # Errors
    /// None: nothing can be given to it.
    pub fn restore_into(
        database: &Database,
        _: &OpenOptions,
        _: &Path,
        _: &mut Progress<'_>,
    ) -> Result<RestoreSummary, VaultError> {
        match database.connector {}
    }
}
