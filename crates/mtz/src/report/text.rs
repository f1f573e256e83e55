//! Numbers and sizes as text, the same in tables, warnings and the page.

/// A number with something between every three digits.
pub fn in_threes(n: u64, between: char) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(between);
        }
        text.push(digit);
    }
    text
}

/// `1.1 MB`, `553 MB`: millions of bytes, as file managers show them.
pub fn in_bytes(n: u64) -> String {
    let (unit, size) = if n < 1_000_000 { ("kB", 1e3) } else { ("MB", 1e6) };
    let x = n as f64 / size;
    if x < 100.0 { format!("{x:.1} {unit}") } else { format!("{x:.0} {unit}") }
}

/// `12 s`, `3 min`, `2 h 5 min`.
pub fn in_time(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..=1 if seconds < 90.0 => format!("{seconds:.0} s"),
        0..=59 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_and_sizes_units() {
        assert_eq!([0, 999, 1_234_567].map(|n| in_threes(n, ' ')), ["0", "999", "1 234 567"]);
        assert_eq!([999, 1_070_496, 553_000_000].map(in_bytes), ["1.0 kB", "1.1 MB", "553 MB"]);
        assert_eq!([12.3, 200.0, 7500.0].map(in_time), ["12 s", "3 min", "2 h 5 min"]);
    }
}
