//! What is typed as a value: sizes, parts, numbers; and how values are typed again.

use mtz::evaluate::Kind;
use std::ffi::OsString;

/// Numbers separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers(pub Vec<f32>);

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |n: &str| n.trim().parse().map_err(|_| format!("{n:?} is not a number"));
        text.split(',').map(number).collect::<Result<_, _>>().map(Self)
    }
}

impl std::fmt::Display for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// A size in bytes, with K, M or G for powers of 1024.
pub fn memory(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size like 800M or 8G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).map(str::to_ascii_uppercase).as_deref() {
        Some("" | "B") => 0,
        Some("K" | "KB" | "KIB") => 10,
        Some("M" | "MB" | "MIB") => 20,
        Some("G" | "GB" | "GIB") => 30,
        _ => return Err(wrong()),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).ok_or_else(wrong)
}

/// How large a file may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// As a part of the given files.
    Part(f64),
    Bytes(u64),
}

impl Size {
    /// In bytes, if the given files take so many.
    pub fn of(self, given: u64) -> u64 {
        match self {
            Self::Part(part) => (part * given as f64) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// `60%` or `0.6`, or bytes like `30MB` (millions, as files are measured) or `30MiB`.
pub fn size(text: &str) -> Result<Size, String> {
    let wrong = || format!("{text:?} is not a size like 60%, 0.6, 30MB or 30MiB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    let number = digits.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0).ok_or_else(wrong)?;
    let bytes = match text.get(digits.len()..).map(str::to_ascii_lowercase).as_deref() {
        Some("%") => return Ok(Size::Part(number / 100.0)),
        Some("") if number <= 1.0 => return Ok(Size::Part(number)),
        // Percent or bytes?
        Some("") => {
            return Err(format!(
                "{text} could be percent or bytes: write {text}%, or a unit like {text}kB or {text}MB"
            ));
        }
        Some("b") => 1.0,
        Some("k" | "kb") => 1e3,
        Some("m" | "mb") => 1e6,
        Some("g" | "gb") => 1e9,
        Some("kib") => 1024.0,
        Some("mib") => 1_048_576.0,
        Some("gib") => 1_073_741_824.0,
        _ => return Err(wrong()),
    };
    Ok(Size::Bytes((number * bytes) as u64))
}

/// `40%` or `0.4`.
pub fn percent(text: &str) -> Result<f64, String> {
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let number = digits.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
    number.map(|x| x / scale).ok_or_else(|| format!("{text:?} is not a part like 40% or 0.4"))
}

/// `99%` or `0.99`, as percent.
pub fn agreement(text: &str) -> Result<f64, String> {
    let part = percent(text)?;
    match part {
        part if part <= 1.0 => Ok(100.0 * part),
        _ if text.ends_with('%') => Err(format!("{text:?} is more than all answers: write 99% or 0.99")),
        _ => Err(format!("{text} is no part of all answers: write {text}% or 0.99")),
    }
}

pub fn kind(text: &str) -> Result<Kind, String> {
    text.parse()
}

/// Long flags may be written with underscores.
pub fn with_dashes(argument: OsString) -> OsString {
    match argument.to_str() {
        Some(text) if text.starts_with("--") => {
            let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
            OsString::from(name.replace('_', "-") + value)
        }
        _ => argument,
    }
}

/// An argument as a shell takes it.
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:%+@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// `2/4`, the second of four parts, as (1, 4).
pub fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
    match numbers {
        Some((i, n)) if (1..=n).contains(&i) => Ok((i - 1, n)),
        _ => Err("a part is I/N, like 1/4 for the first of four".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_typed_again() {
        assert_eq!(quoted("a=models/x-1.onnx"), "a=models/x-1.onnx");
        assert_eq!(quoted("my model's *"), r"'my model'\''s *'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn underscores_become_dashes_in_names_only() {
        assert_eq!(with_dashes("--batch_size=a_b".into()), "--batch-size=a_b");
        assert_eq!(with_dashes("a_b".into()), "a_b");
    }

    #[test]
    fn parts() {
        assert_eq!(part("2/4"), Ok((1, 4)));
        for bad in ["0/4", "5/4", "1", "/", "1/0", "a/b", "-1/2"] {
            assert!(part(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(memory("8G"), Ok(8 << 30));
        assert_eq!(memory("800mb"), Ok(800 << 20));
        assert!(memory("99999999999G").is_err());
        assert!(memory("-1").is_err());
        assert!(memory("8X").is_err());
        assert_eq!(size("60%"), Ok(Size::Part(0.6)));
        assert_eq!(size("0.6"), Ok(Size::Part(0.6)));
        assert_eq!(size("1.5MB"), Ok(Size::Bytes(1_500_000)));
        assert_eq!(size("2MiB"), Ok(Size::Bytes(2 << 20)));
        assert!(size("-5%").is_err() && size("big").is_err() && size("5X").is_err());
        // Of what?
        assert!(size("60").is_err());
        assert_eq!((agreement("99%"), agreement("0.985")), (Ok(99.0), Ok(98.5)));
        assert!(agreement("99").is_err() && agreement("101%").is_err() && agreement("most").is_err());
    }
}
