//! From a [`Graph`] to a file.
//!
//! Weights are written once each, as f32 in raw form; tensors that are mostly zero without their zeros. The opset is the oldest that can say everything, so that older
//! runtimes can read the file.

use super::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type,
    data_type,
};
use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::op::BASE_OPSET;
use crate::op::node::{Attribute, ConstantForm, NodeForm, from_size};
use crate::tensor::{Dim, Shape, Tensor};
use bytes::Bytes;
use prost::Message;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

/// Bytes that a single file may have: protobuf's limit.
pub const LARGEST: u64 = (1 << 31) - 1;

/// Writes a model file. It appears under its name only when it is complete.
pub fn write(graph: &Graph, path: &Path) -> Result<()> {
    let io = |e| Error::io(path, &e);
    let bytes = to_bytes(graph)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // Others may read it as far as the user's mask allows, like any file; temporary files are private otherwise.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(io)?;
    file.write_all(&bytes).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    file.persist(path).map_err(|e| Error::io(path, &e.error))?;
    Ok(())
}

/// The model file as bytes.
pub fn to_bytes(graph: &Graph) -> Result<Vec<u8>> {
    let opset = graph.nodes().iter().map(|n| n.op.since()).max().unwrap_or(BASE_OPSET).max(BASE_OPSET);
    let mut names: HashSet<String> = graph.values().iter().map(|v| v.name.clone()).collect();
    let mut proto = GraphProto { name: graph.name.clone(), ..GraphProto::default() };
    let prefixes: HashSet<&str> = graph.inputs().iter().map(|id| prefix(&graph[*id].name)).collect();
    // Runtimes take sizes of the same name for equal. The tasks of a joint model have batches of their own; where they read one input, they have not.
    let batch = |value: &Value| match prefix(&value.name) {
        own if prefixes.contains(own) => format!("{own}N"),
        _ => "N".to_owned(),
    };
    for id in graph.inputs() {
        proto.input.push(value_info(&graph[*id], &batch(&graph[*id])));
    }
    for id in graph.outputs() {
        proto.output.push(value_info(&graph[*id], &batch(&graph[*id])));
    }
    for value in graph.values() {
        let Some(tensor) = &value.constant else { continue };
        if is_sparse(tensor) {
            proto.sparse_initializer.push(sparse_tensor(&value.name, tensor));
        } else {
            let raw = tensor.data().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
            proto.initializer.push(raw_tensor(&value.name, tensor.shape(), data_type::FLOAT, raw));
        }
    }
    for node in graph.nodes() {
        let mut form = NodeForm::new(opset);
        node.op.write(&mut form);
        let mut input: Vec<String> =
            node.inputs.iter().map(|id| id.map_or_else(String::new, |id| graph[id].name.clone())).collect();
        for (i, constant) in form.constants.iter().enumerate() {
            input.push(constant_input(constant, &node.name, i, &mut names, &mut proto.initializer));
        }
        proto.node.push(NodeProto {
            input,
            output: vec![graph[node.output].name.clone()],
            name: node.name.clone(),
            op_type: node.op.name().to_owned(),
            attribute: form.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
            domain: String::new(),
        });
    }
    let model = ModelProto {
        // The first IR version that allows the opset: 15 came with 8, 19 with 9.
        ir_version: if opset >= 19 { 9 } else { 8 },
        producer_name: "mtz".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(proto),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        metadata_props: graph
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto { key: key.clone(), value: value.clone() })
            .collect(),
    };
    if u64::try_from(model.encoded_len()).is_ok_and(|bytes| bytes > LARGEST) {
        return Err(Error::limit("the model is larger than the 2 GiB a single ONNX file can hold"));
    }
    Ok(model.encode_to_vec())
}

/// The name of an initializer for a constant input, added to the list; empty if it is left out.
fn constant_input(
    constant: &ConstantForm,
    node: &str,
    position: usize,
    names: &mut HashSet<String>,
    initializers: &mut Vec<TensorProto>,
) -> String {
    let (shape, kind, raw): (Vec<usize>, i32, Vec<u8>) = match constant {
        ConstantForm::Missing => return String::new(),
        ConstantForm::Ints(x) => (vec![x.len()], data_type::INT64, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
        // Indices: half the size where they fit.
        ConstantForm::IntTensor(shape, x) => {
            match x.iter().map(|&x| i32::try_from(x)).collect::<std::result::Result<Vec<i32>, _>>() {
                Ok(small) => (shape.clone(), data_type::INT32, small.iter().flat_map(|x| x.to_le_bytes()).collect()),
                Err(_) => (shape.clone(), data_type::INT64, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
            }
        }
        ConstantForm::Floats(x) => (vec![x.len()], data_type::FLOAT, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
        ConstantForm::Float(x) => (vec![], data_type::FLOAT, x.to_le_bytes().to_vec()),
    };
    let mut name = format!("{node}.constant{position}");
    while !names.insert(name.clone()) {
        name.push('_');
    }
    initializers.push(raw_tensor(&name, &shape, kind, raw));
    name
}

/// Whether a tensor takes clearly less room without its zeros: a number costs 12 bytes then instead of 4. Negative zeros would be lost.
fn is_sparse(tensor: &Tensor) -> bool {
    let stored = tensor.data().iter().filter(|x| x.to_bits() != 0).count();
    stored > 0 && tensor.data().len() >= 64 && 4 * stored < tensor.data().len()
}

fn sparse_tensor(name: &str, tensor: &Tensor) -> SparseTensorProto {
    let stored = || tensor.data().iter().enumerate().filter(|(_, x)| x.to_bits() != 0);
    let values: Vec<u8> = stored().flat_map(|(_, x)| x.to_le_bytes()).collect();
    let places: Vec<u8> = stored().flat_map(|(i, _)| from_size(i).to_le_bytes()).collect();
    let count = [stored().count()];
    SparseTensorProto {
        values: Some(raw_tensor(name, &count, data_type::FLOAT, values)),
        indices: Some(raw_tensor(&format!("{name}.places"), &count, data_type::INT64, places)),
        dims: tensor.shape().iter().map(|&n| from_size(n)).collect(),
    }
}

fn raw_tensor(name: &str, shape: &[usize], data_type: i32, raw: Vec<u8>) -> TensorProto {
    TensorProto {
        dims: shape.iter().map(|&n| from_size(n)).collect(),
        data_type,
        name: name.to_owned(),
        raw_data: Some(Bytes::from(raw)),
        ..TensorProto::default()
    }
}

fn attribute(name: &str, value: &Attribute) -> AttributeProto {
    let mut proto = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
    match value {
        Attribute::Int(x) => (proto.r#type, proto.i) = (attribute_type::INT, Some(*x)),
        Attribute::Ints(x) => (proto.r#type, proto.ints) = (attribute_type::INTS, x.clone()),
        Attribute::Float(x) => (proto.r#type, proto.f) = (attribute_type::FLOAT, Some(*x)),
        Attribute::Floats(x) => (proto.r#type, proto.floats) = (attribute_type::FLOATS, x.clone()),
        Attribute::Text(x) => (proto.r#type, proto.s) = (attribute_type::STRING, Some(Bytes::from(x.clone().into_bytes()))),
        Attribute::Other(_) => {} // only ever read
    }
    proto
}

/// `task/` of `task/name`, or nothing.
fn prefix(name: &str) -> &str {
    name.split_inclusive('/').next().filter(|part| part.ends_with('/')).unwrap_or("")
}

fn value_info(value: &Value, batch: &str) -> ValueInfoProto {
    ValueInfoProto {
        name: value.name.clone(),
        r#type: Some(TypeProto {
            tensor_type: Some(TensorTypeProto {
                elem_type: data_type::FLOAT,
                shape: Some(shape_proto(&value.shape, batch)),
            }),
        }),
    }
}

fn shape_proto(shape: &Shape, batch: &str) -> TensorShapeProto {
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(n) => DimensionProto { dim_value: Some(from_size(*n)), dim_param: None },
        Dim::Batch(1) => DimensionProto { dim_value: None, dim_param: Some(batch.to_owned()) },
        Dim::Batch(_) => DimensionProto::default(),
    };
    TensorShapeProto { dim: shape.dims().iter().map(dim).collect() }
}
