//! A look at the raw bytes before they are decoded.
//!
//! An empty protobuf message takes two bytes in a file but a few hundred in memory. Counting the messages first keeps a
//! small hostile file from filling the memory.

use crate::error::{Error, Result};

/// More fields than any real model has; decoded, they take about a gigabyte.
const MAX_FIELDS: usize = 4_000_000;

/// The messages that hold others, as in onnx.proto3.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    Value,
    Type,
    TensorType,
    Shape,
    /// Nothing inside but text and numbers.
    Plain,
}

impl Message {
    /// The message in field `tag`, if it is one that will be decoded.
    fn inside(self, tag: u64) -> Option<Self> {
        Some(match (self, tag) {
            (Self::Model, 7) => Self::Graph,
            (Self::Model, 8 | 14) | (Self::Tensor, 13) | (Self::Shape, 1) => Self::Plain,
            (Self::Graph, 1) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5) | (Self::Sparse, 1 | 2) => Self::Tensor,
            (Self::Graph, 11 | 12) => Self::Value,
            (Self::Graph, 15) => Self::Sparse,
            (Self::Node, 5) => Self::Attribute,
            (Self::Value, 2) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::TensorType, 2) => Self::Shape,
            _ => return None,
        })
    }
}

/// Refuses files that would decode to too many messages, or use protobuf's groups, which ONNX never does.
pub(super) fn check(model: &[u8]) -> Result<()> {
    count(model, Message::Model, &mut 0)
}

fn count(mut bytes: &[u8], message: Message, total: &mut usize) -> Result<()> {
    while !bytes.is_empty() {
        let (tag, content) = field(&mut bytes).ok_or_else(|| {
            Error::model("not a readable ONNX file").hint("the file may be cut off or of another format")
        })?;
        *total += 1;
        if *total > MAX_FIELDS {
            return Err(Error::limit(format!("the file has more than {MAX_FIELDS} fields")));
        }
        if let (Some(content), Some(inner)) = (content, message.inside(tag)) {
            count(content, inner, total)?;
        }
    }
    Ok(())
}

/// Takes the next field off `bytes`: its tag, and its content if it is of variable length.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Option<&'a [u8]>)> {
    let key = varint(bytes)?;
    let len = match key & 7 {
        0 => {
            varint(bytes)?;
            return Some((key >> 3, None));
        }
        1 => 8,
        2 => usize::try_from(varint(bytes)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let (content, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some((key >> 3, (key & 7 == 2).then_some(content)))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::as_conversions)]
mod tests {
    use super::*;

    /// A field of variable length.
    fn nested(tag: u8, content: Vec<u8>) -> Vec<u8> {
        let mut bytes = vec![tag << 3 | 2];
        let mut len = content.len();
        while len >= 0x80 {
            bytes.push((len % 0x80) as u8 | 0x80);
            len /= 0x80;
        }
        bytes.push(len as u8);
        bytes.extend(content);
        bytes
    }

    #[test]
    fn files_of_empty_messages_are_refused_at_any_depth() {
        let many = |tag: u8| nested(tag, vec![]).repeat(MAX_FIELDS + 1);
        assert!(check(&nested(7, many(1))).is_err(), "nodes");
        assert!(check(&many(14)).is_err(), "metadata");
        assert!(check(&nested(7, nested(1, many(5)))).is_err(), "attributes");
        let shape = nested(2, nested(1, nested(2, many(1))));
        assert!(check(&nested(7, nested(11, shape))).is_err(), "dimensions");
        assert!(check(&nested(7, nested(1, vec![]).repeat(100))).is_ok());
    }

    #[test]
    fn groups_are_refused() {
        assert!(check(&[0xa3, 0x06, 0xa4, 0x06]).is_err());
    }
}
