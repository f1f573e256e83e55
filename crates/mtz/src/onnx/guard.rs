//! A look at the raw bytes before they are decoded.
//!
//! An empty protobuf message takes two bytes in a file but a few hundred in memory. Counting the messages first keeps a
//! small hostile file from filling the memory.

use crate::error::{Error, Result};

/// More messages than any real model has; decoded, they take about a gigabyte.
const MAX_MESSAGES: usize = 4_000_000;

/// ModelProto.graph and, inside a graph, the messages worth descending into: nodes (1), initializers (5), inputs (11),
/// outputs (12), value infos (13).
const GRAPH: u64 = 7;

/// Refuses files that would decode to too many messages. Damage is left for the decoder to report.
pub(super) fn check(model: &[u8]) -> Result<()> {
    let mut count = 0usize;
    for (tag, content) in Fields(model) {
        count += 1;
        if tag == GRAPH {
            for (_, message) in Fields(content) {
                count = count.saturating_add(1).saturating_add(Fields(message).count());
                if count > MAX_MESSAGES {
                    return Err(Error::limit(format!("the file has more than {MAX_MESSAGES} messages")));
                }
            }
        }
    }
    Ok(())
}

/// The length-delimited fields of a message, with their tags; others are skipped. Ends at the first damage.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let key = self.varint()?;
            let skip = match key & 7 {
                0 => {
                    self.varint()?;
                    continue;
                }
                1 => 8,
                2 => usize::try_from(self.varint()?).ok()?,
                5 => 4,
                _ => return None,
            };
            let (content, rest) = self.0.split_at_checked(skip)?;
            self.0 = rest;
            if key & 7 == 2 {
                return Some((key >> 3, content));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::as_conversions)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_empty_messages_is_refused() {
        let nodes = vec![0x0a, 0x00].repeat(MAX_MESSAGES);
        let mut model = vec![0x3a];
        let mut len = nodes.len();
        while len >= 0x80 {
            model.push((len % 0x80) as u8 | 0x80);
            len /= 0x80;
        }
        model.push(len as u8);
        model.extend(nodes);
        assert!(check(&model).is_err());
        assert!(check(&model[..100]).is_ok());
    }
}
