//! The time of a run as text, without a calendar library: days since 1970 become a date of the Gregorian calendar.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `2026-11-19T04:05:06Z`; nothing for a time before 1970.
pub(super) fn to_iso(time: SystemTime) -> Option<String> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let (year, month, day) = calendar_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

/// `19 November 2026, 04:05 UTC`; nothing if the text is no such time.
pub(super) fn in_words(iso: &str) -> Option<String> {
    let (date, time) = iso.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.splitn(3, '-').map(str::parse::<usize>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let mut parts = time.splitn(3, ':').map(str::parse::<u8>);
    let (hour, minute) = (parts.next()?.ok()?, parts.next()?.ok()?);
    let month = MONTHS.get(month.checked_sub(1)?)?;
    (day <= 31 && hour < 24 && minute < 60).then(|| format!("{day} {month} {year}, {hour:02}:{minute:02} UTC"))
}

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that a leap day is the last of
/// its year; 400 years are 146 097 days.
fn calendar_date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let iso = |seconds| to_iso(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(iso(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(in_words(&iso(1_709_251_199)).unwrap(), "29 February 2024, 23:59 UTC");
        for odd in ["", "2024-02-29", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "a-b-cT1:2:3Z", "1-1-1T99:0:0Z"] {
            assert_eq!(in_words(odd), None, "{odd}");
        }
    }
}
