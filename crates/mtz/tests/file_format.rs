//! What the files we write hold, at the level of protobuf: readers built from the proto2 definition ask whether a field
//! is present.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;

use cases::cases;
use mtz::onnx;

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

/// The fields of a message; a varint's content is its value in eight bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let len = match key & 7 {
            0 => {
                fields.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)).unwrap(),
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(len);
        fields.push((key >> 3, content.to_vec()));
        bytes = rest;
    }
    fields
}

/// All fields of this number.
fn all(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(message).into_iter().filter(|(n, _)| *n == number).map(|(_, content)| content).collect()
}

fn number(message: &[u8], field: u64) -> u64 {
    u64::from_le_bytes(all(message, field).pop().unwrap().try_into().unwrap())
}

fn text(message: &[u8], field: u64) -> String {
    String::from_utf8(all(message, field).pop().unwrap_or_default()).unwrap()
}

/// Files we write for every golden operator and network.
fn written() -> Vec<(String, Vec<u8>)> {
    let cases = cases("operators").into_iter().chain(cases("networks"));
    cases.map(|case| (case.name.clone(), onnx::to_bytes(&case.graph()).unwrap())).collect()
}

#[test]
fn every_attribute_has_its_value() {
    let (mut zeros, mut seen) = (0, 0);
    for (name, bytes) in written() {
        let graph = all(&bytes, 7).pop().unwrap();
        for node in all(&graph, 1) {
            for attribute in all(&node, 5) {
                let label = || format!("{name}: {}.{}", text(&node, 4), text(&attribute, 1));
                // AttributeProto: float 1 → field 2, int 2 → 3, string 3 → 4, tensor 4 → 5, floats 6 → 7, ints 7 → 8.
                let kind = number(&attribute, 20);
                assert!((1..=7).contains(&kind) && kind != 5, "{}: type {kind}", label());
                let field = kind + 1;
                let value = all(&attribute, field);
                assert!(!value.is_empty(), "{} has no value", label());
                zeros += usize::from(value.iter().all(|v| v.iter().all(|byte| *byte == 0)));
                seen += 1;
            }
        }
    }
    assert!(seen > 500 && zeros > 100, "{seen} attributes, {zeros} of them 0: too few to mean anything");
}

#[test]
fn opset_version_and_tensors_are_what_readers_expect() {
    for (name, bytes) in written() {
        let (ir, opset) = (number(&bytes, 1), number(&all(&bytes, 8).pop().unwrap(), 2));
        assert!(opset >= 15, "{name}: opset {opset}");
        assert_eq!(ir, if opset >= 19 { 9 } else { 8 }, "{name}: opset {opset}");
        let graph = all(&bytes, 7).pop().unwrap();
        assert!(!text(&graph, 2).is_empty(), "{name}: the graph has no name");
        for tensor in all(&graph, 5) {
            assert!(number(&tensor, 2) > 0 && all(&tensor, 9).len() == 1, "{name}: {}", text(&tensor, 8));
        }
        for info in all(&graph, 11).into_iter().chain(all(&graph, 12)) {
            let tensor = all(&all(&info, 2).pop().unwrap(), 1).pop().unwrap();
            assert!(number(&tensor, 1) > 0, "{name}: {} has no element type", text(&info, 1));
            let shape = all(&tensor, 2).pop().expect("a shape");
            for dim in all(&shape, 1) {
                assert!(fields(&dim).len() <= 1 && all(&dim, 1).iter().all(|n| n.iter().any(|b| *b != 0)), "{name}");
            }
        }
    }
}
