//! What several guests share.
