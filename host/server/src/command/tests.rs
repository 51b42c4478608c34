//! Listings of many records.

use super::{LISTED_MAX, ListLimit};
use cofferdam_store::{Error, Page};
use futures_util::FutureExt as _;

/// What a listing of so many records gives, which are numbers in the order of their age.
fn listed(records: u32, limit: Option<u32>) -> Result<Vec<u32>, String> {
    let page = async |before: Option<&u32>| -> Result<Page<u32>, Error> {
        let end = before.copied().unwrap_or(records);
        let start = end.saturating_sub(1000);
        Ok(Page { entries: (start..end).rev().collect(), has_more: start > 0 })
    };
    let listing = ListLimit { limit }.records(page).now_or_never().unwrap();
    listing.map_err(|error| error.message)
}

#[test]
fn a_listing_without_a_limit_has_all_records_or_is_refused() {
    for records in [0, 1, 999, 1000, 1001, LISTED_MAX - 1, LISTED_MAX] {
        assert_eq!(listed(records, None), Ok((0..records).collect()));
    }
    for records in [LISTED_MAX + 1, 2 * LISTED_MAX] {
        assert!(listed(records, None).unwrap_err().contains("more than 50000"));
    }
}

#[test]
fn a_listing_with_a_limit_has_the_newest_records() {
    for (records, limit) in [(0, 5), (3, 5), (5, 5), (6, 5), (2500, 1500), (LISTED_MAX + 7, LISTED_MAX)] {
        let expected = records.saturating_sub(limit)..records;
        assert_eq!(listed(records, Some(limit)), Ok(expected.collect()), "{limit} of {records}");
    }
}
