//! From a file to a [`Graph`].
//!
//! One walk over the nodes in running order: each name stands for a tensor of the graph, a weight nobody has
//! used yet, or a constant known now. What is not understood is collected, so that one error names all of it.

use super::lower::{LOWERED, RawInput, RawNode, check_cast, lower};
use super::proto::{AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use super::proto::{attribute_type, data_type};
use super::tensors::{TensorReader, element, external_file, is_integer, type_name};
use super::{guard, mapped, order, sparse, statics};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, ValueId};
use crate::op::node::{Attribute, Input, NodeSpec, Scalar, Static, to_f32};
use crate::op::{NAMES, Op};
use crate::tensor::{Dim, Element, Shape, Tensor};
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The operator sets that are understood.
pub const OLDEST_OPSET: i64 = 9;
/// The newest operator set that is understood.
pub const NEWEST_OPSET: i64 = 28;

/// A protobuf file cannot be larger.
const MAX_FILE: u64 = 2 << 30;

/// Elements of all integer and computed constants together (256 MiB).
const MAX_COMPUTED: usize = 1 << 24;

/// Float constants up to this size may become parameters of an operator (limits, scales, widths).
const MAX_PARAMETER: usize = 1024;

/// Reads a model file, with its external data if it has any.
pub fn read(path: &Path) -> Result<Graph> {
    let bytes = open(path)?;
    read_bytes(bytes, Some(folder_of(path))).map_err(|e| e.in_file(path))
}

/// The files a model stands in: its own, and those with external data that are there.
pub fn files(path: &Path) -> Result<BTreeSet<PathBuf>> {
    let model = decode(open(path)?).map_err(|e| e.in_file(path))?;
    let graph = model.graph.as_ref();
    let nodes = graph.into_iter().flat_map(|g| &g.node).flat_map(|n| &n.attribute).filter_map(|a| a.t.as_ref());
    let sparse = graph.into_iter().flat_map(|g| &g.sparse_initializer).flat_map(|s| [&s.values, &s.indices]).flatten();
    let tensors = graph.into_iter().flat_map(|g| &g.initializer).chain(nodes).chain(sparse);
    let beside = tensors.filter_map(|tensor| external_file(folder_of(path), tensor).ok().flatten());
    Ok(beside.chain([path.to_owned()]).collect())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// The bytes of a model file.
fn open(path: &Path) -> Result<Bytes> {
    let io = |e| Error::io(path, &e);
    let size = std::fs::metadata(path).map_err(io)?;
    if !size.is_file() {
        return Err(Error::new(ErrorKind::Io, format!("{}: not a file", path.display())));
    }
    if size.len() > MAX_FILE {
        return Err(
            Error::limit(format!("{}: larger than 2 GiB", path.display())).hint("store the weights as external data")
        );
    }
    mapped::bytes(path, size.len())
}

fn decode(bytes: Bytes) -> Result<ModelProto> {
    guard::check(&bytes)?;
    ModelProto::decode(bytes).map_err(|e| {
        Error::model(format!("not a readable ONNX file ({e})")).hint("the file may be cut off or of another format")
    })
}

/// The network in the bytes of a file that has all its weights inside.
pub fn parse(bytes: &[u8]) -> Result<Graph> {
    read_bytes(Bytes::copy_from_slice(bytes), None)
}

/// Reads a model from memory; `folder` is where its external data may lie.
pub fn read_bytes(bytes: Bytes, folder: Option<&Path>) -> Result<Graph> {
    let model = decode(bytes)?;
    let opset = opset(&model)?;
    let Some(proto) = &model.graph else {
        return Err(Error::model("the file has no graph").hint("is this an ONNX model?"));
    };
    let mut reader = Reader {
        graph: Graph::new(proto.name.clone()),
        names: HashMap::new(),
        used: used_names(proto),
        taken: written_names(proto),
        computed: 0,
        opset,
        tensors: TensorReader::new(folder),
        stored: Stored::default(),
        offences: Vec::new(),
        hint: None,
        unknown: HashSet::new(),
    };
    reader.graph.metadata = model.metadata_props.iter().map(|p| (p.key.clone(), p.value.clone())).collect();
    let sparse = sparse::find(proto);
    reader.interface(proto, &sparse)?;
    for i in order::sorted(&proto.node)? {
        if let Some(node) = proto.node.get(i).filter(|_| !sparse.nodes.contains(&i)) {
            reader.node(node, &order::label(node, i))?;
        }
    }
    reader.finish(proto)
}

fn opset(model: &ModelProto) -> Result<i64> {
    let standard = |domain: &str| domain.is_empty() || domain == "ai.onnx";
    let found = model.opset_import.iter().find(|o| standard(&o.domain)).map(|o| o.version);
    match found {
        Some(version) if (OLDEST_OPSET..=NEWEST_OPSET).contains(&version) => Ok(version),
        Some(version) => Err(Error::unsupported(format!("the model uses opset {version}"))
            .hint(format!("opsets {OLDEST_OPSET} to {NEWEST_OPSET} are supported: export with opset_version=17"))),
        None => Err(Error::model("the file names no operator set").hint("is this an ONNX model?")),
    }
}

/// All names somebody reads.
fn used_names(proto: &GraphProto) -> HashSet<String> {
    let inputs = proto.node.iter().flat_map(|n| &n.input);
    inputs.chain(proto.output.iter().map(|o| &o.name)).cloned().collect()
}

/// All names somebody writes.
fn written_names(proto: &GraphProto) -> HashSet<String> {
    let outputs = proto.node.iter().flat_map(|n| &n.output);
    let others = proto.initializer.iter().map(|t| &t.name).chain(proto.input.iter().map(|i| &i.name));
    let sparse = proto.sparse_initializer.iter().filter_map(|s| s.values.as_ref()).map(|v| &v.name);
    outputs.chain(others).chain(sparse).cloned().collect()
}

/// What a name stands for.
#[derive(Clone)]
enum Operand {
    Value(ValueId),
    /// A weight that is not in the graph yet, and how the file stores it.
    Weight(Tensor, Element),
    Static(Static),
}

/// How the weights that are used were stored.
#[derive(Default)]
struct Stored {
    half: bool,
    single: bool,
    /// Tensors of more than one number as something else than f16.
    wide: bool,
}

impl Stored {
    fn note(&mut self, weight: &Tensor, element: Element) {
        match element {
            Element::F16 => self.half = true,
            Element::F32 => self.single = true,
        }
        self.wide |= element == Element::F32 && weight.data().len() > 1;
    }

    /// f16 only where nothing is lost by it: single numbers do not count beside f16 tensors. Without weights, the
    /// inputs tell.
    fn element(&self, graph: &Graph) -> Element {
        let inputs = || graph.inputs().iter().all(|id| graph[*id].element == Element::F16);
        let half = if self.half || self.single { self.half } else { inputs() };
        if half && !self.wide { Element::F16 } else { Element::F32 }
    }
}

struct Reader {
    graph: Graph,
    names: HashMap<String, Operand>,
    used: HashSet<String>,
    /// Names the file uses, which rewritten nodes must not take.
    taken: HashSet<String>,
    /// Elements of constants computed so far.
    computed: usize,
    opset: i64,
    tensors: TensorReader,
    stored: Stored,
    /// What is not supported, a line each.
    offences: Vec<String>,
    /// What to do about it, if there is only one.
    hint: Option<String>,
    /// Names whose value depends on something unsupported.
    unknown: HashSet<String>,
}

impl Reader {
    fn define(&mut self, name: &str, operand: Operand) -> Result<()> {
        if let Operand::Static(value) = &operand {
            self.computed = self.computed.saturating_add(value.elements.len());
            if self.computed > MAX_COMPUTED {
                return Err(Error::limit("the model computes too many constants while it is read"));
            }
        }
        if self.names.insert(name.to_owned(), operand).is_some() {
            return Err(Error::model(format!("value {name:?} is written twice")));
        }
        Ok(())
    }

    fn offend(&mut self, label: &str, op: &str, reason: &Error, outputs: &[String]) {
        self.hint = reason.hint_text().filter(|_| self.offences.is_empty()).map(str::to_owned);
        self.offences.push(format!("{label} ({op}): {}", reason.message()));
        self.unknown.extend(outputs.iter().cloned());
    }

    /// Weights and inputs.
    fn interface(&mut self, proto: &GraphProto, found: &sparse::Found) -> Result<()> {
        for sparse in proto.sparse_initializer.iter().chain(&found.tensors) {
            let name = sparse.values.as_ref().map_or("", |v| v.name.as_str()).to_owned();
            match self.tensors.sparse(sparse) {
                Ok(tensor) => {
                    let kind = sparse.values.as_ref().map_or(0, |v| v.data_type);
                    self.define(&name, Operand::Weight(tensor, element(kind)))?;
                }
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    self.offend(&name, "sparse initializer", &e, std::slice::from_ref(&name));
                }
                Err(e) => return Err(e),
            }
        }
        for tensor in proto.initializer.iter().filter(|t| !found.initializers.contains(&t.name)) {
            match self.constant(tensor) {
                Ok(operand) => self.define(&tensor.name, operand)?,
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    let name = tensor.name.clone();
                    self.offend(&name, "initializer", &e, std::slice::from_ref(&name));
                }
                Err(e) => return Err(e),
            }
        }
        for input in &proto.input {
            if self.names.contains_key(&input.name) || self.unknown.contains(&input.name) {
                continue; // old files list weights as inputs too
            }
            match input_shape(input) {
                Ok((shape, element)) => {
                    let id = self.graph.add_input(input.name.clone(), shape);
                    self.graph.set_element(id, element);
                    self.define(&input.name, Operand::Value(id))?;
                }
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    self.offend(&input.name, "input", &e, std::slice::from_ref(&input.name));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn constant(&mut self, tensor: &TensorProto) -> Result<Operand> {
        if is_integer(tensor.data_type) {
            return self.tensors.integers(tensor).map(Operand::Static);
        }
        // An empty list (Resize's unused inputs) has no place in the graph.
        if tensor.dims.contains(&0) {
            return Ok(Operand::Static(Static { shape: vec![0], elements: vec![], integer: false }));
        }
        self.tensors.floats(tensor).map(|weight| Operand::Weight(weight, element(tensor.data_type)))
    }

    fn node(&mut self, node: &NodeProto, label: &str) -> Result<()> {
        let standard = node.domain.is_empty() || node.domain == "ai.onnx";
        let op = if standard { node.op_type.clone() } else { format!("{}.{}", node.domain, node.op_type) };
        match self.try_node(node, &op, label) {
            Err(e) if e.kind() == ErrorKind::Unsupported => self.offend(label, &op, &e, &node.output),
            other => return other.map_err(|e| e.at_node(label)),
        }
        Ok(())
    }

    fn try_node(&mut self, node: &NodeProto, op: &str, label: &str) -> Result<()> {
        if node.input.iter().any(|name| self.unknown.contains(name)) {
            self.unknown.extend(node.output.iter().cloned());
            if !(NAMES.contains(&op) || LOWERED.contains(&op) || STATIC.contains(&op)) {
                return Err(Error::unsupported("operator is not supported"));
            }
            return Ok(()); // nothing can be said about it, and it is not to blame
        }
        let (mut attributes, mut tensor) = (Vec::new(), None);
        for attribute in &node.attribute {
            match &attribute.t {
                Some(t) if ["", "value"].contains(&attribute.name.as_str()) => tensor = Some(t),
                _ => attributes.push((attribute.name.clone(), read_attribute(attribute))),
            }
        }
        let inputs =
            node.input.iter().map(|n| if n.is_empty() { RawInput::Missing } else { RawInput::Value(n.clone()) });
        let raw = RawNode {
            name: label.to_owned(),
            op: op.to_owned(),
            opset: self.opset,
            attributes,
            inputs: inputs.collect(),
            outputs: node.output.iter().take_while(|o| !o.is_empty()).cloned().collect(),
        };
        let raw = self.cast_like(raw);
        let output = raw.outputs.first().cloned().ok_or_else(|| Error::model("the node has no output"))?;
        if let Some(constant) = self.known_now(&raw, tensor)? {
            return self.define(&output, constant);
        }
        if raw.op == "Cast" {
            check_cast(&raw)?;
            if let Some(same) = self.cast(&raw) {
                return self.define(&output, same);
            }
        }
        let specs = self.specs(&raw)?;
        for node in self.with_free_names(lower(raw, &specs)?, &node.output) {
            match (self.known_now(&node, None)?, node.outputs.first()) {
                (Some(constant), Some(output)) => self.define(output, constant)?,
                _ => self.emit(node)?,
            }
        }
        Ok(())
    }

    /// Gives the values between rewritten nodes names that the file does not use.
    fn with_free_names(&mut self, mut nodes: Vec<RawNode>, outputs: &[String]) -> Vec<RawNode> {
        for i in 0..nodes.len() {
            let Some(old) = nodes.get(i).and_then(|n| n.outputs.first()).filter(|o| !outputs.contains(o)).cloned()
            else {
                continue;
            };
            let mut new = old.clone();
            while !self.taken.insert(new.clone()) {
                new.push('_');
            }
            for node in &mut nodes {
                node.outputs.iter_mut().filter(|o| **o == old).for_each(|o| o.clone_from(&new));
                for input in &mut node.inputs {
                    if let RawInput::Value(name) = input
                        && *name == old
                        && new != old
                    {
                        name.clone_from(&new);
                    }
                }
            }
        }
        nodes
    }

    /// `CastLike` is a `Cast` to the type of its second input.
    fn cast_like(&self, node: RawNode) -> RawNode {
        if node.op != "CastLike" {
            return node;
        }
        let integer = match node.inputs.get(1) {
            Some(RawInput::Value(name)) => matches!(self.names.get(name), Some(Operand::Static(s)) if s.integer),
            _ => false,
        };
        let to = if integer { data_type::INT64 } else { data_type::FLOAT };
        RawNode {
            op: "Cast".to_owned(),
            attributes: vec![("to".to_owned(), Attribute::Int(to.into()))],
            inputs: node.inputs.into_iter().take(1).collect(),
            ..node
        }
    }

    /// What a cast between floating types stands for: the tensor itself.
    fn cast(&self, node: &RawNode) -> Option<Operand> {
        let Some(RawInput::Value(name)) = node.inputs.first() else { return None };
        self.names.get(name).filter(|same| !matches!(same, Operand::Static(_))).cloned()
    }

    /// The value of a node that is known without running the network: constants and shape arithmetic.
    fn known_now(&mut self, node: &RawNode, tensor: Option<&TensorProto>) -> Result<Option<Operand>> {
        let attribute = |name: &str| node.attributes.iter().find(|(n, _)| n == name).map(|(_, a)| a);
        let int = |name: &str| match attribute(name) {
            Some(Attribute::Int(x)) => Some(*x),
            _ => None,
        };
        match node.op.as_str() {
            "Constant" => {
                return match (tensor, node.attributes.first().map(|(_, a)| a)) {
                    (Some(tensor), _) => self.constant(tensor),
                    (None, Some(Attribute::Int(x))) => Ok(known(vec![], &[Scalar::Number(wide(*x))], true)),
                    (None, Some(Attribute::Ints(x))) => {
                        let elements: Vec<Scalar> = x.iter().map(|&x| Scalar::Number(wide(x))).collect();
                        Ok(known(vec![x.len()], &elements, true))
                    }
                    (None, Some(Attribute::Float(x))) => Ok(Operand::Weight(Tensor::scalar(*x), Element::F32)),
                    (None, Some(Attribute::Floats(x))) if x.is_empty() => Ok(known(vec![0], &[], false)),
                    (None, Some(Attribute::Floats(x))) => {
                        Tensor::new(vec![x.len()], x.clone()).map(|x| Operand::Weight(x, Element::F32))
                    }
                    _ => Err(Error::unsupported("a constant of this type")),
                }
                .map(Some);
            }
            "Shape" | "Size" => {
                let shape = match node.inputs.first() {
                    Some(input @ RawInput::Value(_)) => {
                        NodeSpec::new(self.opset, vec![], vec![self.input(input)?]).shape(0)?
                    }
                    _ => return Err(Error::model("input 0 is missing")),
                };
                let whole = statics::shape_of(&shape, int("start").unwrap_or(0), int("end"));
                if node.op == "Shape" {
                    return Ok(Some(Operand::Static(whole)));
                }
                let product = [("keepdims".to_owned(), Attribute::Int(0))];
                return Ok(statics::evaluate("ReduceProd", &product, &[Some(whole)]).map(Operand::Static));
            }
            _ => {}
        }
        let mut inputs = Vec::new();
        for input in &node.inputs {
            inputs.push(match self.input(input)? {
                Input::Missing => None,
                Input::Static(value) | Input::Constant(_, Some(value)) => Some(value),
                _ => return Ok(None),
            });
        }
        if node.op == "ConstantOfShape"
            && let Some(tensor) = tensor
        {
            inputs.push(match self.constant(tensor)? {
                Operand::Static(value) => Some(value),
                Operand::Weight(value, _) => static_of(&value),
                Operand::Value(_) => None,
            });
        }
        Ok(statics::evaluate(&node.op, &node.attributes, &inputs).map(Operand::Static))
    }

    fn input(&self, input: &RawInput) -> Result<Input> {
        let name = match input {
            RawInput::Missing => return Ok(Input::Missing),
            RawInput::Constant(value) => return Ok(Input::Static(value.clone())),
            RawInput::Value(name) => name,
        };
        match self.names.get(name) {
            Some(Operand::Value(id)) => Ok(match &self.graph[*id].constant {
                Some(tensor) => Input::Constant(self.graph[*id].shape.clone(), static_of(tensor)),
                None => Input::Tensor(self.graph[*id].shape.clone()),
            }),
            Some(Operand::Weight(tensor, _)) => Ok(Input::Constant(Shape::fixed(tensor.shape())?, static_of(tensor))),
            Some(Operand::Static(value)) => Ok(Input::Static(value.clone())),
            None => Err(Error::model(format!("value {name:?} is read but never written"))),
        }
    }

    fn specs(&self, node: &RawNode) -> Result<Vec<Input>> {
        node.inputs.iter().map(|i| self.input(i)).collect()
    }

    /// Adds a node to the graph.
    fn emit(&mut self, node: RawNode) -> Result<()> {
        let mut spec = NodeSpec::new(node.opset, node.attributes.clone(), self.specs(&node)?);
        let op = Op::read(&node.op, &mut spec).ok_or_else(|| unsupported(&node.op))??;
        if let Some(extra) = node.outputs.iter().skip(1).find(|o| self.used.contains(*o)) {
            return Err(Error::unsupported(format!("its further output {extra:?} is used")));
        }
        let mut inputs = Vec::new();
        for (input, is_tensor) in node.inputs.iter().zip(spec.finish()?) {
            inputs.push(match input {
                RawInput::Value(name) if is_tensor => Some(self.tensor(name)?),
                RawInput::Constant(value) if is_tensor => {
                    let mut name = format!("{}.constant", node.name);
                    while !self.taken.insert(name.clone()) {
                        name.push('_');
                    }
                    self.define(&name, Operand::Static(value.clone()))?;
                    Some(self.tensor(&name)?)
                }
                _ => None,
            });
        }
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        let Some(output) = node.outputs.first() else {
            return Err(Error::model("the node has no output"));
        };
        let id = self.graph.add_node(node.name.clone(), op, inputs, output.clone())?;
        self.define(output, Operand::Value(id))
    }

    /// The graph's value of a name; weights enter the graph when they are first used.
    fn tensor(&mut self, name: &str) -> Result<ValueId> {
        let tensor = match self.names.get(name) {
            Some(Operand::Value(id)) => return Ok(*id),
            Some(Operand::Weight(tensor, element)) => {
                self.stored.note(tensor, *element);
                tensor.clone()
            }
            Some(Operand::Static(value)) if value.integer => {
                return Err(Error::unsupported(format!("it computes with integers ({name:?})")));
            }
            Some(Operand::Static(value)) => {
                let numbers = value.numbers().filter(|n| !n.is_empty());
                let numbers =
                    numbers.ok_or_else(|| Error::unsupported(format!("{name:?} depends on the batch size")))?;
                Tensor::new(value.shape.clone(), numbers.into_iter().map(to_f32).collect())?
            }
            None => return Err(Error::model(format!("value {name:?} is read but never written"))),
        };
        let id = self.graph.add_constant(name, tensor)?;
        self.names.insert(name.to_owned(), Operand::Value(id));
        Ok(id)
    }

    fn finish(mut self, proto: &GraphProto) -> Result<Graph> {
        if !self.offences.is_empty() {
            let many = if self.offences.len() == 1 { "one thing" } else { "several things" };
            return Err(Error::unsupported(format!("the model uses {many} that mtz does not support:"))
                .with_items(self.offences)
                .hint(self.hint.unwrap_or_else(|| {
                    "mtz inspect MODEL lists every node; the README lists the supported operators".to_owned()
                })));
        }
        if proto.output.is_empty() {
            return Err(Error::model("the model has no output"));
        }
        self.graph.element = self.stored.element(&self.graph);
        for output in &proto.output {
            let id = self.tensor(&output.name)?;
            if !self.graph.depends_on_inputs(id) {
                return Err(Error::unsupported(format!("output {:?} is a constant", output.name)));
            }
            let id = if self.graph[id].name == output.name { id } else { self.graph.renamed(id, &output.name)? };
            let kind = output.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).map(|t| t.elem_type);
            self.graph.set_element(id, kind.filter(|kind| *kind != 0).map_or(self.graph.element, element));
            self.graph.add_output(id);
        }
        Ok(self.graph)
    }
}

/// Operators that only ever appear in shape arithmetic.
const STATIC: [&str; 13] = [
    "Ceil",
    "Constant",
    "ConstantOfShape",
    "Equal",
    "Expand",
    "Floor",
    "Max",
    "Min",
    "Mod",
    "ReduceProd",
    "Shape",
    "Size",
    "Where",
];

fn unsupported(op: &str) -> Error {
    let error = Error::unsupported("operator is not supported");
    match op {
        // A class token for each sample.
        "Expand" => error.hint("export the model with a batch size of 1 instead of an open one: mtz opens it"),
        _ => error,
    }
}

fn known(shape: Vec<usize>, elements: &[Scalar], integer: bool) -> Operand {
    Operand::Static(Static { shape, elements: elements.to_vec(), integer })
}

/// A small weight as parameter of an operator.
fn static_of(tensor: &Tensor) -> Option<Static> {
    let elements = || tensor.data().iter().map(|&x| Scalar::Number(x.into())).collect();
    (tensor.data().len() <= MAX_PARAMETER).then(|| Static {
        shape: tensor.shape().to_vec(),
        elements: elements(),
        integer: false,
    })
}

#[allow(clippy::as_conversions)] // beyond 2⁵³ only "very large" matters
fn wide(x: i64) -> f64 {
    x as f64
}

fn read_attribute(proto: &AttributeProto) -> Attribute {
    let text = || String::from_utf8_lossy(proto.s.as_deref().unwrap_or_default()).into_owned();
    let (float, int) = (proto.f.unwrap_or(0.0), proto.i.unwrap_or(0));
    match proto.r#type {
        _ if !proto.ref_attr_name.is_empty() => Attribute::Other("reference"),
        attribute_type::FLOAT => Attribute::Float(float),
        attribute_type::INT => Attribute::Int(int),
        attribute_type::STRING => Attribute::Text(text()),
        attribute_type::FLOATS => Attribute::Floats(proto.floats.clone()),
        attribute_type::INTS => Attribute::Ints(proto.ints.clone()),
        // Very old files leave the type out: the field that is filled tells.
        0 if !proto.ints.is_empty() => Attribute::Ints(proto.ints.clone()),
        0 if !proto.floats.is_empty() => Attribute::Floats(proto.floats.clone()),
        0 if proto.s.is_some() => Attribute::Text(text()),
        0 if proto.f.is_some() => Attribute::Float(float),
        0 => Attribute::Int(int),
        attribute_type::GRAPH => Attribute::Other("graph"),
        attribute_type::TENSOR => Attribute::Other("tensor"),
        _ => Attribute::Other("list"),
    }
}

/// The shape of an input: the first dimension may be open, all others must be numbers.
fn input_shape(input: &ValueInfoProto) -> Result<(Shape, Element)> {
    let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| Error::unsupported("it is not a tensor"))?;
    if !data_type::FLOATS.contains(&tensor.elem_type) {
        return Err(Error::unsupported(format!("it is of type {}, not float", type_name(tensor.elem_type))));
    }
    let shape = tensor.shape.as_ref().ok_or_else(|| Error::unsupported("it has no shape"))?;
    let mut dims = Vec::new();
    for (axis, dim) in shape.dim.iter().enumerate() {
        dims.push(match dim.dim_value {
            Some(n) if n > 0 => Dim::Fixed(usize::try_from(n).map_err(|_| Error::model(format!("dimension {n}")))?),
            _ if axis == 0 => Dim::Batch(1),
            Some(n) => return Err(Error::model(format!("input {:?} has a dimension of {n}", input.name))),
            None => {
                let name = |d: &DimensionProto| match d.dim_value {
                    Some(n) => n.to_string(),
                    None => d.dim_param.clone().unwrap_or_else(|| "?".to_owned()),
                };
                let all = shape.dim.iter().map(name).collect::<Vec<_>>().join(", ");
                return Err(Error::unsupported(format!(
                    "it is [{all}]: dimension {axis} is open; only the first, the batch, may be"
                ))
                .hint(
                    "export the model with a fixed size for all dimensions but the batch: \
                     only that one is named in dynamic_axes or dynamic_shapes",
                ));
            }
        });
    }
    Ok((Shape::new(dims)?, element(tensor.elem_type)))
}
