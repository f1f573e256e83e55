//! From a [`Graph`] to a file.
//!
//! Weights are written once each, in raw form and as the graph's element type; tensors that are mostly zero without
//! their zeros. Inputs and outputs of another type are cast at the border. The opset is the oldest that can say
//! everything, so that older runtimes can read the file.

use super::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto, attribute_type, data_type,
};
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value, ValueId, beyond};
use crate::op::BASE_OPSET;
use crate::op::node::{Attribute, ConstantForm, NodeForm, from_size};
use crate::tensor::{Dim, Element, Shape, Tensor};
use bytes::Bytes;
use half::f16;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

/// Bytes that a single file may have: protobuf's limit.
pub const LARGEST: u64 = (1 << 31) - 1;

/// Writes a model file. It appears under its name only when it is complete.
pub fn write(graph: &Graph, path: &Path) -> Result<()> {
    write_if(graph, path, |_| Ok(()))
}

/// The same, but the file is read back, and gets its name only if `check` finds nothing wrong with what was read.
pub fn write_checked(graph: &Graph, path: &Path, check: impl FnOnce(&Graph) -> Result<()>) -> Result<()> {
    write_if(graph, path, |file| check(&super::read(file)?).map_err(|e| e.in_file(path)))
}

fn write_if(graph: &Graph, path: &Path, complete: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let io = |e| Error::io(path, &e);
    let bytes = to_bytes(graph)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // Others may read it as far as the user's mask allows, like any file; temporary files are private otherwise.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(io)?;
    file.write_all(&bytes).map_err(io)?;
    drop(bytes);
    file.as_file().sync_all().map_err(io)?;
    complete(file.path())?;
    file.persist(path).map_err(|e| Error::io(path, &e.error))?;
    Ok(())
}

/// The model file as bytes.
pub fn to_bytes(graph: &Graph) -> Result<Vec<u8>> {
    let model = model(graph)?;
    if u64::try_from(model.encoded_len()).is_ok_and(|bytes| bytes > LARGEST) {
        return Err(Error::limit("the model is larger than the 2 GiB a single ONNX file can hold"));
    }
    Ok(model.encode_to_vec())
}

/// How many bytes that are.
pub fn file_bytes(graph: &Graph) -> Result<u64> {
    Ok(u64::try_from(model(graph)?.encoded_len()).unwrap_or(u64::MAX))
}

/// The model file as a message.
fn model(graph: &Graph) -> Result<ModelProto> {
    let opset = graph.nodes().iter().map(|n| n.op.since()).max().unwrap_or(BASE_OPSET).max(BASE_OPSET);
    let mut writer = Writer {
        graph,
        values: graph.values().iter().map(|v| v.name.clone()).collect(),
        nodes: graph.nodes().iter().map(|n| n.name.clone()).collect(),
        inner: HashMap::new(),
        proto: GraphProto { name: graph.name.clone(), ..GraphProto::default() },
    };
    if graph.name.is_empty() {
        writer.proto.name = "graph".to_owned(); // must have one
    }
    writer.interface();
    writer.weights()?;
    for node in graph.nodes() {
        writer.node(node, opset)?;
    }
    writer.casts_of_outputs();
    Ok(ModelProto {
        // The first IR version that allows the opset: 15 came with 8, 19 with 9.
        ir_version: if opset >= 19 { 9 } else { 8 },
        producer_name: "mtz".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(writer.proto),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        metadata_props: graph
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto { key: key.clone(), value: value.clone() })
            .collect(),
    })
}

/// The graph's message in the making.
struct Writer<'g> {
    graph: &'g Graph,
    /// Names of values that are taken.
    values: HashSet<String>,
    /// Names of nodes that are taken.
    nodes: HashSet<String>,
    /// What inputs and outputs are called between the casts, where they have another type than the graph computes in.
    inner: HashMap<ValueId, String>,
    proto: GraphProto,
}

impl Writer<'_> {
    /// Inputs and outputs, and the casts of inputs.
    fn interface(&mut self) {
        let graph = self.graph;
        let prefixes: HashSet<&str> = graph.inputs().iter().map(|id| prefix(&graph[*id].name)).collect();
        // Runtimes take sizes of the same name for equal. The tasks of a joint model have batches of their own; where
        // they read one input, they have not.
        let batch = |value: &Value| match prefix(&value.name) {
            own if prefixes.contains(own) => format!("{own}N"),
            _ => "N".to_owned(),
        };
        self.proto.input = graph.inputs().iter().map(|id| value_info(&graph[*id], &batch(&graph[*id]))).collect();
        self.proto.output = graph.outputs().iter().map(|id| value_info(&graph[*id], &batch(&graph[*id]))).collect();
        let computed: HashSet<ValueId> = graph.nodes().iter().map(|node| node.output).collect();
        let outputs = graph.outputs().iter().filter(|id| computed.contains(id));
        for &id in graph.inputs().iter().chain(outputs) {
            let value = &graph[id];
            if value.element != graph.element && !self.inner.contains_key(&id) {
                let inner = free(&format!("{}.{}", value.name, graph.element), &mut self.values);
                if graph.inputs().contains(&id) {
                    self.cast(&value.name, &inner, graph.element);
                }
                self.inner.insert(id, inner);
            }
        }
    }

    fn casts_of_outputs(&mut self) {
        for info in self.proto.output.clone() {
            let value = self.graph.outputs().iter().find(|id| self.graph[**id].name == info.name);
            if let Some(id) = value.filter(|id| !self.graph.inputs().contains(id))
                && let Some(inner) = self.inner.get(id).cloned()
            {
                self.cast(&inner, &info.name, self.graph[*id].element);
            }
        }
    }

    fn cast(&mut self, from: &str, to: &str, element: Element) {
        let node = NodeProto {
            input: vec![from.to_owned()],
            output: vec![to.to_owned()],
            name: free(&format!("{to}.cast"), &mut self.nodes),
            op_type: "Cast".to_owned(),
            attribute: vec![attribute("to", &Attribute::Int(data_type_of(element).into()))],
            domain: String::new(),
        };
        self.proto.node.push(node);
    }

    fn weights(&mut self) -> Result<()> {
        let element = self.graph.element;
        for value in self.graph.values() {
            let Some(tensor) = &value.constant else { continue };
            if is_sparse(tensor, element) {
                self.sparse(&value.name, tensor)?;
            } else {
                let raw = raw(tensor.data().iter().copied(), element, &value.name)?;
                self.proto.initializer.push(raw_tensor(&value.name, tensor.shape(), data_type_of(element), raw));
            }
        }
        Ok(())
    }

    /// A tensor without its zeros: see [`super::sparse`].
    fn sparse(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let element = self.graph.element;
        let stored = || tensor.data().iter().enumerate().filter(|(_, x)| x.to_bits() != 0);
        let values = raw(stored().map(|(_, x)| *x), element, name)?;
        let places: Vec<i64> = stored().map(|(i, _)| from_size(i)).collect();
        let zero = raw_tensor("", &[1], data_type_of(element), vec![0; element.bytes()]);
        let shape = tensor.shape().iter().map(|&n| from_size(n)).collect();
        let size = self.constant("size", &ConstantForm::Ints(vec![from_size(tensor.data().len())]), name);
        let places = self.constant("places", &ConstantForm::IntTensor(vec![places.len()], places), name);
        let shape = self.constant("shape", &ConstantForm::Ints(shape), name);
        let numbers = free(&format!("{name}.values"), &mut self.values);
        self.proto.initializer.push(raw_tensor(&numbers, &[stored().count()], data_type_of(element), values));
        let zeros = free(&format!("{name}.zeros"), &mut self.values);
        let flat = free(&format!("{name}.flat"), &mut self.values);
        let value = AttributeProto {
            name: "value".to_owned(),
            r#type: attribute_type::TENSOR,
            t: Some(zero),
            ..AttributeProto::default()
        };
        for (op, input, output, attribute) in [
            ("ConstantOfShape", vec![size], zeros.clone(), vec![value]),
            (
                "ScatterElements",
                vec![zeros, places, numbers],
                flat.clone(),
                vec![attribute("axis", &Attribute::Int(0))],
            ),
            ("Reshape", vec![flat, shape], name.to_owned(), vec![]),
        ] {
            let node = free(&output, &mut self.nodes);
            let (output, op_type) = (vec![output], op.to_owned());
            self.proto.node.push(NodeProto { input, output, name: node, op_type, attribute, domain: String::new() });
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, opset: i64) -> Result<()> {
        let mut form = NodeForm::new(opset);
        node.op.write(&mut form);
        let name = |id: ValueId| self.inner.get(&id).unwrap_or(&self.graph[id].name).clone();
        let mut input: Vec<String> = node.inputs.iter().map(|id| id.map_or_else(String::new, name)).collect();
        let output = vec![name(node.output)];
        for (i, constant) in form.constants.iter().enumerate() {
            input.push(self.constant(&format!("constant{i}"), constant, &node.name));
        }
        self.proto.node.push(NodeProto {
            input,
            output,
            name: node.name.clone(),
            op_type: node.op.name().to_owned(),
            attribute: form.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
            domain: String::new(),
        });
        Ok(())
    }

    /// The name of an initializer, `of.what`, for a constant input that is added to the list; empty if it is left out.
    fn constant(&mut self, what: &str, constant: &ConstantForm, of: &str) -> String {
        let (shape, kind, raw): (Vec<usize>, i32, Vec<u8>) = match constant {
            ConstantForm::Missing => return String::new(),
            ConstantForm::Ints(x) => {
                (vec![x.len()], data_type::INT64, x.iter().flat_map(|x| x.to_le_bytes()).collect())
            }
            // Indices: half the size where they fit.
            ConstantForm::IntTensor(shape, x) => {
                match x.iter().map(|&x| i32::try_from(x)).collect::<std::result::Result<Vec<i32>, _>>() {
                    Ok(small) => {
                        (shape.clone(), data_type::INT32, small.iter().flat_map(|x| x.to_le_bytes()).collect())
                    }
                    Err(_) => (shape.clone(), data_type::INT64, x.iter().flat_map(|x| x.to_le_bytes()).collect()),
                }
            }
            ConstantForm::Floats(x) => {
                (vec![x.len()], data_type::FLOAT, x.iter().flat_map(|x| x.to_le_bytes()).collect())
            }
            ConstantForm::Float(x) => (vec![], data_type::FLOAT, x.to_le_bytes().to_vec()),
            ConstantForm::Element(x) => match self.graph.element {
                Element::F32 => (vec![], data_type::FLOAT, x.to_le_bytes().to_vec()),
                Element::F16 => (vec![], data_type::FLOAT16, f16::from_f32(*x).to_le_bytes().to_vec()),
            },
        };
        let name = free(&format!("{of}.{what}"), &mut self.values);
        self.proto.initializer.push(raw_tensor(&name, &shape, kind, raw));
        name
    }
}

/// A name nobody has yet: this one, or with something behind it.
fn free(name: &str, taken: &mut HashSet<String>) -> String {
    let mut name = name.to_owned();
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// ONNX's number of an element type.
fn data_type_of(element: Element) -> i32 {
    match element {
        Element::F32 => data_type::FLOAT,
        Element::F16 => data_type::FLOAT16,
    }
}

/// Numbers as bytes of an element type; an error if it cannot hold one.
fn raw(numbers: impl Iterator<Item = f32>, element: Element, tensor: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(numbers.size_hint().0.saturating_mul(element.bytes()));
    for x in numbers {
        let near = element.nearest(x).ok_or_else(|| beyond(element, tensor, x))?;
        match element {
            Element::F32 => bytes.extend(near.to_le_bytes()),
            Element::F16 => bytes.extend(f16::from_f32(near).to_le_bytes()),
        }
    }
    Ok(bytes)
}

/// Whether a tensor takes clearly less room without its zeros: a number brings an index then, of 4 or 8 bytes. Negative
/// zeros would be lost.
fn is_sparse(tensor: &Tensor, element: Element) -> bool {
    let stored = tensor.data().iter().filter(|x| x.to_bits() != 0).count();
    let least = (8 + element.bytes()) / element.bytes() + 1;
    stored > 0 && tensor.data().len() >= 64 && least * stored < tensor.data().len()
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
        Attribute::Text(x) => {
            (proto.r#type, proto.s) = (attribute_type::STRING, Some(Bytes::from(x.clone().into_bytes())))
        }
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
                elem_type: data_type_of(value.element),
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
