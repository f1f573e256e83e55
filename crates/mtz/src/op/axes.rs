//! Which axes of an operator's tensors move together.
//!
//! If the channels of a value are reordered, everything that reads them must be reordered alike. Each operator states
//! its part of that as links between two axes; the graph joins them into groups. `zip` needs the groups to
//! exchange, pair and share units without changing what a network computes.

/// A tensor of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port {
    /// An input, by position.
    Input(usize),
    /// The output.
    Output,
}

/// Two axes that move together: element i of `part` is found at `offset + (o·len + i)·inner + r` along `whole` for
/// all o < `outer` and r < `inner`, where len is the length of `part`; `rest` more elements of `whole` follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisLink {
    /// The axis that is reordered.
    pub part: (Port, usize),
    /// The axis that follows.
    pub whole: (Port, usize),
    /// How often all of `part` is repeated along `whole`.
    pub outer: usize,
    /// How many neighbours along `whole` belong to one element of `part`.
    pub inner: usize,
    /// Where `part` begins.
    pub offset: usize,
    /// What is left of `whole` behind it.
    pub rest: usize,
}

impl AxisLink {
    /// Element i of one axis is element i of the other.
    pub fn same(part: (Port, usize), whole: (Port, usize)) -> Self {
        Self { part, whole, outer: 1, inner: 1, offset: 0, rest: 0 }
    }

    /// Whether the two axes correspond one to one.
    pub fn is_same(&self) -> bool {
        self.outer == 1 && self.inner == 1 && self.offset == 0 && self.rest == 0
    }
}

/// Input `i` to output, axis by axis, for all axes but those `except`.
pub fn through(i: usize, rank: usize, except: impl Fn(usize) -> bool) -> Vec<AxisLink> {
    (0..rank).filter(|&a| !except(a)).map(|a| AxisLink::same((Port::Input(i), a), (Port::Output, a))).collect()
}

/// The links of elementwise operators: each input axis that is not repeated follows the output's.
pub fn broadcast(inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
    let mut links = Vec::new();
    for (i, shape) in inputs.iter().enumerate() {
        let missing = output.len() - shape.len();
        for (axis, &len) in shape.iter().enumerate() {
            if len == output[axis + missing] && len > 1 {
                links.push(AxisLink::same((Port::Input(i), axis), (Port::Output, axis + missing)));
            }
        }
    }
    links
}

/// The links of a change of shape that keeps the order of elements: an axis survives, or is a factor of a merged one.
pub fn reshape(input: &[usize], output: &[usize]) -> Vec<AxisLink> {
    let mut links = Vec::new();
    let (mut i, mut o) = (0, 0);
    while i < input.len() && o < output.len() {
        // The shortest stretches of both with the same number of elements.
        let (start_i, start_o) = (i, o);
        let (mut left, mut right) = (input[i], output[o]);
        (i, o) = (i + 1, o + 1);
        while left != right {
            if left < right && i < input.len() {
                left *= input[i];
                i += 1;
            } else if right < left && o < output.len() {
                right *= output[o];
                o += 1;
            } else {
                return links;
            }
        }
        if o == start_o + 1 {
            links.extend(factors(&input[start_i..i]).map(|(k, outer, inner)| AxisLink {
                part: (Port::Input(0), start_i + k),
                whole: (Port::Output, start_o),
                outer,
                inner,
                offset: 0,
                rest: 0,
            }));
        } else if i == start_i + 1 {
            links.extend(factors(&output[start_o..o]).map(|(k, outer, inner)| AxisLink {
                part: (Port::Output, start_o + k),
                whole: (Port::Input(0), start_i),
                outer,
                inner,
                offset: 0,
                rest: 0,
            }));
        }
    }
    links
}

/// For each axis longer than one of a stretch: its position, and the products of the lengths before and behind it.
fn factors(dims: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> {
    dims.iter()
        .enumerate()
        .filter(|&(_, &len)| len > 1)
        .map(|(k, _)| (k, dims[..k].iter().product(), dims[k + 1..].iter().product()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flattening_keeps_every_axis_as_a_factor() {
        let links = reshape(&[2, 3, 4, 5], &[2, 60]);
        let inner: Vec<_> = links.iter().map(|l| (l.part.1, l.whole.1, l.outer, l.inner)).collect();
        assert_eq!(inner, [(0, 0, 1, 1), (1, 1, 1, 20), (2, 1, 3, 5), (3, 1, 12, 1)]);
    }

    #[test]
    fn splitting_and_unit_axes() {
        let links = reshape(&[6, 1, 4], &[2, 3, 4]);
        let parts: Vec<_> = links.iter().map(|l| (l.part, l.whole)).collect();
        assert_eq!(
            parts,
            [
                ((Port::Output, 0), (Port::Input(0), 0)),
                ((Port::Output, 1), (Port::Input(0), 0)),
                ((Port::Input(0), 2), (Port::Output, 2)),
            ]
        );
    }
}
