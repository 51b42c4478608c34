//! A moment in a time zone.

use jiff::civil::Weekday;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, Zoned};

/// The values that the tool returns.
pub(crate) struct Moment {
    /// ISO 8601 with milliseconds and offset: `2026-11-21T09:00:00.000+01:00`.
    pub(crate) datetime: String,
    /// The zone's name in the spelling of the database.
    pub(crate) timezone: String,
    /// The English name of the day.
    pub(crate) weekday: &'static str,
}

impl Moment {
    /// The moment `unix_ms` in `zone`. `None` for an unknown zone or a time after the year 9999.
    pub(crate) fn new(unix_ms: u64, zone: &str) -> Option<Self> {
        let zone = find(zone)?;
        let moment = Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?.to_zoned(zone.clone());
        Some(Self {
            datetime: iso_8601(&moment)?,
            timezone: zone.iana_name().unwrap_or("UTC").to_owned(),
            weekday: name(moment.weekday()),
        })
    }
}

/// The zone's name in the spelling of the database.
pub(crate) fn canonical_name(zone: &str) -> Option<String> {
    find(zone).map(|zone| zone.iana_name().unwrap_or("UTC").to_owned())
}

fn find(zone: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(zone.trim()).ok()
}

fn iso_8601(moment: &Zoned) -> Option<String> {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    let mut text = String::with_capacity(32);
    if moment.offset() == Offset::UTC {
        PRINTER.print_datetime(&moment.datetime(), &mut text).ok()?;
        text.push_str("+00:00");
    } else {
        PRINTER.print_timestamp_with_offset(&moment.timestamp(), moment.offset(), &mut text).ok()?;
    }
    Some(text)
}

fn name(weekday: Weekday) -> &'static str {
    match weekday {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}
