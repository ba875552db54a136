//! `strftime` of the present, for templates that print the date. Times are UTC.

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
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SECONDS_PER_DAY: u64 = 86_400;

/// Seconds since 1970; a clock set before that counts as 1970.
pub(super) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_lengths(year: u64) -> [u64; 12] {
    let february = if is_leap(year) { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// `format` with C's directives replaced for the second `seconds` after 1970, UTC.
pub(super) fn strftime(format: &str, seconds: u64) -> Result<String, String> {
    let days = seconds / SECONDS_PER_DAY;
    let second_of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    // 1 January 1970 was a Thursday.
    let weekday = DAYS[((days + 4) % 7) as usize];
    let (mut year, mut day) = (1970, days);
    loop {
        let length = 365 + u64::from(is_leap(year));
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let day_of_year = day + 1;
    let mut month = 0;
    for length in month_lengths(year) {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (day, month_name) = (day + 1, MONTHS[month]);
    let hour12 = (hour + 11) % 12 + 1;

    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let directive = characters.next();
        let unpadded = directive == Some('-');
        let directive = if unpadded { characters.next() } else { directive };
        let (number, width) = match directive {
            Some('Y') => (year, 4),
            Some('y') => (year % 100, 2),
            Some('m') => (month as u64 + 1, 2),
            Some('d') => (day, 2),
            Some('H') => (hour, 2),
            Some('I') => (hour12, 2),
            Some('M') => (minute, 2),
            Some('S') => (second, 2),
            Some('j') => (day_of_year, 3),
            other => {
                out.push_str(match other {
                    Some('B') => month_name,
                    Some('b') => &month_name[..3],
                    Some('A') => weekday,
                    Some('a') => &weekday[..3],
                    Some('p') if hour < 12 => "AM",
                    Some('p') => "PM",
                    Some('%') => "%",
                    _ => return Err(format!("strftime_now does not know a directive of {format:?}")),
                });
                continue;
            }
        };
        let width = if unpadded { 0 } else { width };
        out.push_str(&format!("{number:0width$}"));
    }
    Ok(out)
}
