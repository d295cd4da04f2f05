//! Time toolset: the current time in a zone, and conversion between zones. Names and arguments are those of the
//! official reference server.

use std::path::Path;
use std::sync::Arc;

use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, Zoned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Toolset, ToolsetError};
use crate::catalog::{CallContext, Definition, IntoTool as _, ToolError, tool_fn};

/// The toolset `time`: the current time in a zone, and times converted between zones.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeConfig {
    /// IANA time zone that the model uses if the user names none, such as `Europe/Berlin`. Default: the machine's
    /// zone, which in a container is UTC.
    pub local_zone: Option<String>,
}

pub(super) fn toolset(settings: &TimeConfig) -> Result<Toolset, ToolsetError> {
    let local = match &settings.local_zone {
        Some(name) => {
            TimeZone::get(name).map_err(|_| {
                ToolsetError::setting(
                    "builtin.time.local_zone",
                    format!("is {name:?}, which is not a time zone; names look like Europe/Berlin"),
                )
            })?;
            name.clone()
        }
        None => machine_zone(),
    };
    let current = Definition::new("get_current_time")
        .title("Current time")
        .description(format!(
            "Returns the current time in a time zone. If the user names none, use {local}."
        ))
        .read_only(true)
        .destructive(false)
        .open_world(false);
    let convert = Definition::new("convert_time")
        .title("Convert time")
        .description(format!(
            "Converts a time of today between two time zones. Where the user names no zone, it is {local}."
        ))
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false);
    Ok(Toolset {
        tools: vec![
            tool_fn(
                current,
                |_: Arc<CallContext>, wanted: CurrentTime| async move {
                    let zone = zone("timezone", &wanted.timezone)?;
                    let now = Timestamp::now().to_zoned(zone);
                    Ok(Moment::new(&wanted.timezone, &now))
                },
            )
            .into_tool(),
            tool_fn(
                convert,
                |_: Arc<CallContext>, wanted: ConvertTime| async move {
                    converted(&wanted, Timestamp::now())
                },
            )
            .into_tool(),
        ],
        ..Toolset::default()
    })
}

/// Returns the name of the machine's zone. It is usually the target of a link. Searching the database would read the
/// beginning of each of its files, which would take a good part of the startup time.
fn machine_zone() -> String {
    let link = match std::env::var_os("TZ") {
        Some(_) => None,
        None => std::fs::read_link("/etc/localtime").ok(),
    };
    if let Some(name) = link.as_deref().and_then(zone_of_link) {
        return name.to_owned();
    }
    let system = TimeZone::system();
    system.iana_name().unwrap_or("UTC").to_owned()
}

/// Returns the zone that a link into the database names.
fn zone_of_link(target: &Path) -> Option<&str> {
    let (_, name) = target.to_str()?.rsplit_once("/zoneinfo/")?;
    let is_of_a_variant = ["posix/", "right/"]
        .iter()
        .any(|variant| name.starts_with(variant));
    (!name.is_empty() && !is_of_a_variant).then_some(name)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CurrentTime {
    /// The zone's name in the IANA database, for example America/New_York or Europe/London.
    timezone: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConvertTime {
    /// The zone in which the time is given: its name in the IANA database, for example America/New_York.
    source_timezone: String,
    /// The time, on a clock of 24 hours: HH:MM.
    time: String,
    /// The zone to convert to: its name in the IANA database, for example Asia/Tokyo.
    target_timezone: String,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Moment {
    /// The zone, as it was asked for.
    timezone: String,
    /// Date and time with the zone's offset, for example 2026-07-28T12:00:00+02:00.
    datetime: String,
    /// Day of the week, in English.
    day_of_week: String,
    /// True if daylight saving time is in effect.
    is_dst: bool,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Conversion {
    source: Moment,
    target: Moment,
    /// Difference between the target's clocks and the source's, for example +5.5h.
    time_difference: String,
}

impl Moment {
    fn new(name: &str, at: &Zoned) -> Self {
        let info = at.time_zone().to_offset_info(at.timestamp());
        Self {
            timezone: name.to_owned(),
            datetime: at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
            day_of_week: at.strftime("%A").to_string(),
            is_dst: info.dst().is_dst(),
        }
    }
}

fn zone(argument: &str, name: &str) -> Result<TimeZone, ToolError> {
    TimeZone::get(name).map_err(|e| {
        ToolError::new(format!(
            "{argument} is {name:?}, which is not a time zone of the IANA database; names look like Asia/Tokyo"
        ))
        .caused_by(e)
    })
}

/// Converts a time of the current day in the source zone.
fn converted(wanted: &ConvertTime, now: Timestamp) -> Result<Conversion, ToolError> {
    let source_zone = zone("source_timezone", &wanted.source_timezone)?;
    let target_zone = zone("target_timezone", &wanted.target_timezone)?;
    let (hour, minute) = clock(&wanted.time).ok_or_else(|| {
        ToolError::new(format!(
            "time is {:?}; write it as HH:MM on a clock of 24 hours, for example 16:30",
            wanted.time
        ))
    })?;
    let today = now.to_zoned(source_zone.clone()).date();
    let ambiguous = source_zone.to_ambiguous_zoned(today.at(hour, minute, 0, 0));
    if let AmbiguousOffset::Gap { .. } = ambiguous.offset() {
        return Err(ToolError::new(format!(
            "{} does not exist in {} on {today}: clocks are set forward over it",
            wanted.time, wanted.source_timezone
        )));
    }
    // When clocks are set back, the first of the two times is used.
    let source = ambiguous.compatible()?;
    let target = source.with_time_zone(target_zone);
    let ahead = target.offset().seconds() - source.offset().seconds();
    Ok(Conversion {
        source: Moment::new(&wanted.source_timezone, &source),
        target: Moment::new(&wanted.target_timezone, &target),
        time_difference: hours(ahead),
    })
}

fn clock(text: &str) -> Option<(i8, i8)> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str, end: i8| {
        let is_short = matches!(digits.len(), 1 | 2);
        let number = digits.bytes().all(|b| b.is_ascii_digit()) && is_short;
        let number: i8 = number.then(|| digits.parse().ok())??;
        (number < end).then_some(number)
    };
    Some((number(hour, 24)?, number(minute, 60)?))
}

/// Formats hours with at least one decimal, and as many as needed: `+9.0h`, `+5.75h`.
fn hours(seconds: i32) -> String {
    let text = format!("{:+.2}", f64::from(seconds) / 3600.0);
    let text = text.strip_suffix('0').unwrap_or(&text);
    format!("{text}h")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(source: &str, time: &str, target: &str, now: &str) -> Result<Conversion, ToolError> {
        let wanted = ConvertTime {
            source_timezone: source.to_owned(),
            time: time.to_owned(),
            target_timezone: target.to_owned(),
        };
        converted(&wanted, now.parse().expect("a time"))
    }

    #[test]
    fn a_link_into_the_database_says_what_the_zone_is_called() {
        let of = |target| zone_of_link(Path::new(target));
        assert_eq!(
            of("/usr/share/zoneinfo/Europe/Berlin"),
            Some("Europe/Berlin")
        );
        assert_eq!(of("../usr/share/zoneinfo/UTC"), Some("UTC"));
        for other in [
            "/etc/zone",
            "/usr/share/zoneinfo/",
            "/usr/share/zoneinfo/posix/UTC",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn times_are_converted_on_the_day_that_it_is_at_the_source() {
        // It is the 29th in Tokyo already.
        let done = convert(
            "Asia/Tokyo",
            "9:05",
            "Europe/Berlin",
            "2026-07-28T20:00:00Z",
        )
        .expect("converted");
        assert_eq!(done.source.datetime, "2026-07-29T09:05:00+09:00");
        assert_eq!(done.target.datetime, "2026-07-29T02:05:00+02:00");
        assert_eq!(done.target.day_of_week, "Wednesday");
        assert_eq!((done.source.is_dst, done.target.is_dst), (false, true));
        assert_eq!(done.time_difference, "-7.0h");
    }

    #[test]
    fn differences_of_hours_are_written_short() {
        let difference = |target| {
            convert("UTC", "12:00", target, "2026-01-15T00:00:00Z")
                .expect("converted")
                .time_difference
        };
        assert_eq!(difference("Asia/Kathmandu"), "+5.75h");
        assert_eq!(difference("Asia/Kolkata"), "+5.5h");
        assert_eq!(difference("America/St_Johns"), "-3.5h");
        assert_eq!(difference("UTC"), "+0.0h");
    }

    #[test]
    fn a_time_that_clocks_skip_does_not_exist_and_one_that_they_repeat_is_the_first() {
        let skipped = convert("America/New_York", "02:30", "UTC", "2026-03-08T12:00:00Z");
        let message = skipped.expect_err("skipped").message().to_owned();
        assert!(message.contains("2026-03-08"), "{message}");
        let repeated = convert("America/New_York", "01:30", "UTC", "2026-11-01T12:00:00Z")
            .expect("there are two");
        assert_eq!(repeated.target.datetime, "2026-11-01T05:30:00+00:00");
    }

    #[test]
    fn what_is_no_time_and_no_zone_is_refused() {
        for time in [
            "24:00", "12:60", "12", "12:5:0", "+1:00", "-1:00", "", "12:00 ", "noon", "123:00",
            "１2:00",
        ] {
            let refused = convert("UTC", time, "UTC", "2026-01-15T00:00:00Z").expect_err(time);
            assert!(refused.message().contains("HH:MM"), "{time}");
        }
        for zone in [
            "",
            "Nowhere/City",
            "../../etc/passwd",
            "/etc/localtime",
            "Europe/",
            "a\0b",
        ] {
            let refused = convert(zone, "12:00", "UTC", "2026-01-15T00:00:00Z").expect_err(zone);
            assert!(refused.message().contains("source_timezone"), "{zone}");
        }
        let wrong = TimeConfig {
            local_zone: Some("Berlin".to_owned()),
        };
        let refused = toolset(&wrong).err().expect("refused").to_string();
        assert!(refused.contains("builtin.time.local_zone"), "{refused}");
    }
}
