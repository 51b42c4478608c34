//! Ids and seeds, from the randomness of the operating system.

/// 32 unpredictable hexadecimal digits, for ids.
pub(crate) fn random_hex() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// A seed for the router, different for each request that belongs to no session with a name.
pub(crate) fn random_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
