//! Parsing and formatting of dates.

use jiff::Timestamp;
use jiff::Zoned;
use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};

use crate::catalog::ToolError;

/// Accepted formats besides Git's own. A time without a zone is in UTC.
const TIMES: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];
const DATES: [&str; 8] = [
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%b %d %Y",
    "%b %d, %Y",
    "%d %b %Y",
    "%B %d %Y",
    "%B %d, %Y",
    "%d %B %Y",
];

/// Parses a date, a time or a relative time to seconds.
pub(super) fn read(what: &str, text: &str, now: &Zoned) -> Result<i64, ToolError> {
    let text = text.trim();
    let utc = |civil: DateTime| civil.to_zoned(TimeZone::UTC).ok();
    let found = TIMES
        .iter()
        .find_map(|form| DateTime::strptime(form, text).ok())
        .or_else(|| {
            DATES
                .iter()
                .find_map(|form| Some(Date::strptime(form, text).ok()?.into()))
        })
        .and_then(utc)
        .map(|zoned| zoned.timestamp().as_second())
        .or_else(|| text.parse::<Timestamp>().ok().map(Timestamp::as_second))
        .or_else(|| {
            gix::date::parse(text, Some(now.clone()))
                .ok()
                .map(|time| time.seconds)
        });
    found.ok_or_else(|| {
        ToolError::new(format!(
            "{what} is '{text}', which is not a time; write 2024-01-15T14:30:25, 2024-01-15, '2 weeks ago' or 'yesterday'"
        ))
    })
}

/// Formats a time in its own zone: `2024-01-15 14:30:25`, followed by the zone.
pub(super) fn shown(time: gix::date::Time, zone: &str) -> String {
    let zoned = Timestamp::from_second(time.seconds)
        .ok()
        .zip(Offset::from_seconds(time.offset).ok())
        .map(|(at, offset)| at.to_zoned(TimeZone::fixed(offset)));
    match zoned {
        Some(zoned) => zoned
            .strftime(&format!("%Y-%m-%d %H:%M:%S{zone}"))
            .to_string(),
        None => time.seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_read_in_the_forms_that_people_use() {
        let now: Zoned = "2024-03-10T12:00:00+00:00[UTC]".parse().expect("a time");
        let second = |text: &str| {
            let at: Timestamp = text.parse().expect("a time");
            at.as_second()
        };
        for (text, expected) in [
            ("2024-01-15T14:30:25", "2024-01-15T14:30:25Z"),
            ("2024-01-15T14:30:25Z", "2024-01-15T14:30:25Z"),
            ("2024-01-15T14:30:25+02:00", "2024-01-15T12:30:25Z"),
            ("2024-01-15 14:30:25 +0200", "2024-01-15T12:30:25Z"),
            ("2024-01-15", "2024-01-15T00:00:00Z"),
            ("Jan 15 2024", "2024-01-15T00:00:00Z"),
            ("January 15, 2024", "2024-01-15T00:00:00Z"),
            ("15 Jan 2024", "2024-01-15T00:00:00Z"),
            ("yesterday", "2024-03-09T12:00:00Z"),
            ("2 weeks ago", "2024-02-25T12:00:00Z"),
            ("2 hours ago", "2024-03-10T10:00:00Z"),
            ("@1700000000", "2023-11-14T22:13:20Z"),
        ] {
            let read = read("start_timestamp", text, &now).map_err(|e| e.message().to_owned());
            assert_eq!(read, Ok(second(expected)), "{text}");
        }
        for text in ["", "no time", "2024-13-45", "--since=x"] {
            let error = read("start_timestamp", text, &now).expect_err(text);
            assert!(error.message().starts_with("start_timestamp is"), "{text}");
        }
    }

    #[test]
    fn times_are_shown_in_their_own_zone() {
        let time = gix::date::Time::new(1_700_000_000, 2 * 3600);
        assert_eq!(shown(time, "%:z"), "2023-11-15 00:13:20+02:00");
        assert_eq!(shown(time, " %z"), "2023-11-15 00:13:20 +0200");
        assert_eq!(
            shown(gix::date::Time::new(i64::MAX, 0), "%:z"),
            i64::MAX.to_string()
        );
    }
}
