//! The sliding window of convolution and pooling: where it starts, how far it steps, how many places it has.

use crate::error::{Error, Result};

/// A window along one spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Taps of the window.
    pub size: usize,
    /// Distance between two places of the window.
    pub stride: usize,
    /// Distance between two taps.
    pub dilation: usize,
    /// Padding in front.
    pub before: usize,
    /// Padding behind.
    pub after: usize,
}

impl Window {
    /// The window that leaves an axis alone.
    pub const ONE: Self = Self { size: 1, stride: 1, dilation: 1, before: 0, after: 0 };

    /// From first to last tap.
    pub fn span(&self) -> usize {
        self.dilation * (self.size - 1) + 1
    }

    /// The number of places on an axis of `input` elements:
    /// ⌊(input + before + after − span) / stride⌋ + 1, rounded up instead where `ceil` is asked for, but never with
    /// a window that starts in the padding behind.
    pub fn places(&self, input: usize, ceil: bool) -> Result<usize> {
        let padded = input.checked_add(self.before).and_then(|n| n.checked_add(self.after));
        let free = padded.and_then(|n| n.checked_sub(self.span())).ok_or_else(|| {
            Error::model(format!("a window of {} does not fit on {input} padded elements", self.span()))
        })?;
        let mut places = if ceil { free.div_ceil(self.stride) } else { free / self.stride } + 1;
        if ceil && (places - 1) * self.stride >= input + self.before {
            places -= 1;
        }
        Ok(places)
    }

    /// The places whose tap `tap` falls on one of `input` real elements, as a half-open range below `places`.
    pub fn valid(&self, tap: usize, input: usize, places: usize) -> (usize, usize) {
        let shift = tap * self.dilation;
        let first = self.before.saturating_sub(shift).div_ceil(self.stride);
        let end = (input + self.before).saturating_sub(shift).div_ceil(self.stride);
        (first.min(places), end.clamp(first.min(places), places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_places_are_exactly_those_inside() {
        for size in 1..4 {
            for stride in 1..4 {
                for dilation in 1..3 {
                    for before in 0..4 {
                        for input in 1..9 {
                            let window = Window { size, stride, dilation, before, after: 1 };
                            for ceil in [false, true] {
                                let Ok(places) = window.places(input, ceil) else { continue };
                                for tap in 0..size {
                                    let (start, end) = window.valid(tap, input, places);
                                    for place in 0..places {
                                        let at = place * stride + tap * dilation;
                                        let inside = at >= before && at < before + input;
                                        assert_eq!(inside, (start..end).contains(&place), "{window:?} {input}");
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
