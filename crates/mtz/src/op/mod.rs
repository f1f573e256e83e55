//! The operators, one file each: how it is read and written, its shape rule, its forward pass, and which axes move
//! together. The list in `operators!` below is the only one; the reader, the runner and the documentation use it.

pub mod axes;
pub mod node;

use crate::error::{Error, Result};
use crate::tensor::{Element, Shape, View, ViewMut};
use axes::AxisLink;
use node::{NodeForm, NodeSpec};

/// The opset written where no operator needs a newer one. Before 15, some runtimes take `BatchNormalization` for
/// training.
pub const BASE_OPSET: i64 = 15;

/// The facts an operator states about itself.
pub trait Operator: Clone + std::fmt::Debug + PartialEq {
    /// ONNX's name.
    const NAME: &'static str;
    /// How many of its inputs are tensors: at least, at most.
    const INPUTS: (usize, usize);

    /// Takes attributes and constant inputs from a node of a file.
    fn read(node: &mut NodeSpec) -> Result<Self>;
    /// Gives them back.
    fn write(&self, _form: &mut NodeForm) {}
    /// The oldest opset that can say it.
    fn since(&self) -> i64 {
        BASE_OPSET
    }
    /// The shape of the output; an error if the inputs do not fit together.
    fn shape(&self, inputs: &Shapes) -> Result<Shape>;
    /// Computes the output. The shapes have been checked by [`Operator::shape`].
    fn forward(&self, inputs: &Inputs, out: ViewMut);
    /// Numbers that the forward pass of training leaves for the backward pass: batch statistics, masks.
    fn saved(&self, _inputs: &[&[usize]], _output: &[usize]) -> usize {
        0
    }
    /// Computes the output in training; differs from [`Operator::forward`] only for operators that behave differently.
    fn forward_training(&self, inputs: &Inputs, out: ViewMut, _training: &mut Training) {
        self.forward(inputs, out);
    }
    /// Computes the gradients of the inputs that are asked for from the gradient of the output.
    fn backward(&self, pass: &Pass, gradients: &mut Gradients);
    /// Rounds what is stored as one number of the tensors' type.
    fn round(&mut self, _element: Element) {}
    /// Bytes the forward pass takes beside its output, where they grow with the shapes.
    fn scratch(&self, _inputs: &[&[usize]], _output: &[usize]) -> u64 {
        0
    }
    /// Whether the output is the input's numbers unchanged, so that nothing needs to be computed or copied.
    fn is_view(&self) -> bool {
        false
    }
    /// Which axes move together, for these shapes.
    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink>;
    /// Multiply-adds of one forward pass: what a convolution or matrix product costs; 0 for everything cheap.
    fn multiply_adds(&self, _inputs: &[&[usize]], _output: &[usize]) -> u64 {
        0
    }
}

/// The shapes of an operator's inputs.
#[derive(Clone, Copy, Debug)]
pub struct Shapes<'a>(pub &'a [Option<&'a Shape>]);

impl<'a> Shapes<'a> {
    /// The shape of a required input.
    pub fn get(&self, i: usize) -> Result<&'a Shape> {
        self.optional(i).ok_or_else(|| Error::model(format!("input {i} is missing")))
    }

    /// The shape of an optional input.
    pub fn optional(&self, i: usize) -> Option<&'a Shape> {
        self.0.get(i).copied().flatten()
    }

    /// How many inputs there are, left-out ones included.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The tensors an operator reads. Required ones are present: the graph checked their number.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a>(pub &'a [Option<View<'a>>]);

impl<'a> Inputs<'a> {
    /// A required input.
    pub fn get(&self, i: usize) -> View<'a> {
        self.optional(i).unwrap_or(View { shape: &[], data: &[] })
    }

    /// An optional input.
    pub fn optional(&self, i: usize) -> Option<View<'a>> {
        self.0.get(i).copied().flatten()
    }
}

/// What an operator may use and must leave behind in the forward pass of training.
#[derive(Debug)]
pub struct Training<'a> {
    /// Room for [`Operator::saved`] numbers.
    pub saved: &'a mut [f32],
    /// Another number for every node and step, for operators that draw random numbers.
    pub seed: u64,
}

/// What an operator sees on the way back.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The inputs of the forward pass.
    pub inputs: Inputs<'a>,
    /// Its output.
    pub output: View<'a>,
    /// What it left behind.
    pub saved: &'a [f32],
    /// The gradient of the output.
    pub grad: View<'a>,
}

/// The gradient of an input, to be computed.
#[derive(Debug)]
pub struct Gradient<'a> {
    /// The numbers.
    pub data: &'a mut [f32],
    /// Add to what is there (another reader of the same value came first) instead of overwriting it.
    pub add: bool,
}

impl Gradient<'_> {
    /// Makes the numbers safe to add to.
    pub fn start(&mut self) {
        if !self.add {
            self.data.fill(0.0);
        }
    }

    /// Sets or adds `grad` unchanged.
    pub fn pass_on(&mut self, grad: &[f32]) {
        crate::kernel::map_into(grad, self.data, self.add, |g| g);
    }
}

/// The gradients of an operator's inputs; those nobody wants are `None`.
#[derive(Debug)]
pub struct Gradients<'a>(pub Vec<Option<Gradient<'a>>>);

impl<'a> Gradients<'a> {
    /// The gradient of input `i`, if it is wanted.
    pub fn get(&mut self, i: usize) -> Option<&mut Gradient<'a>> {
        self.0.get_mut(i)?.as_mut()
    }
}

macro_rules! operators {
    ($($module:ident :: $name:ident,)*) => {
        $(mod $module; pub use $module::$name;)*

        /// An operator of the graph.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = concat!("ONNX's `", stringify!($name), "`.")] $name($name),)*
        }

        $(impl From<$name> for Op {
            fn from(op: $name) -> Self {
                Self::$name(op)
            }
        })*

        /// The names of all supported operators, in alphabetic order.
        pub const NAMES: &[&str] = &[$(<$name as Operator>::NAME,)*];

        impl Op {
            /// Reads the operator called `name`; `None` if there is none.
            pub fn read(name: &str, node: &mut NodeSpec) -> Option<Result<Self>> {
                match name {
                    $(<$name as Operator>::NAME => Some(<$name as Operator>::read(node).map(Self::$name)),)*
                    _ => None,
                }
            }

            /// ONNX's name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => <$name as Operator>::NAME,)* }
            }

            fn arity(&self) -> (usize, usize) {
                match self { $(Self::$name(_) => <$name as Operator>::INPUTS,)* }
            }

            /// Attributes and constant inputs for a file.
            pub fn write(&self, form: &mut NodeForm) {
                match self { $(Self::$name(op) => op.write(form),)* }
            }

            /// The oldest opset that can say it.
            pub fn since(&self) -> i64 {
                match self { $(Self::$name(op) => op.since(),)* }
            }

            fn output_shape(&self, inputs: &Shapes) -> Result<Shape> {
                match self { $(Self::$name(op) => op.shape(inputs),)* }
            }

            /// Computes the output; the shapes must have been checked by [`Op::shape`].
            pub fn forward(&self, inputs: &Inputs, out: ViewMut) {
                match self { $(Self::$name(op) => op.forward(inputs, out),)* }
            }

            /// Numbers the forward pass of training leaves for the backward pass.
            pub fn saved(&self, inputs: &[&[usize]], output: &[usize]) -> usize {
                match self { $(Self::$name(op) => op.saved(inputs, output),)* }
            }

            /// Computes the output in training.
            pub fn forward_training(&self, inputs: &Inputs, out: ViewMut, training: &mut Training) {
                match self { $(Self::$name(op) => op.forward_training(inputs, out, training),)* }
            }

            /// Computes the gradients of the inputs from that of the output.
            pub fn backward(&self, pass: &Pass, gradients: &mut Gradients) {
                match self { $(Self::$name(op) => op.backward(pass, gradients),)* }
            }

            /// Rounds what is stored as one number of the tensors' type.
            pub fn round(&mut self, element: Element) {
                match self { $(Self::$name(op) => op.round(element),)* }
            }

            /// Bytes the forward pass takes beside its output.
            pub fn scratch(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
                match self { $(Self::$name(op) => op.scratch(inputs, output),)* }
            }

            /// Whether the output is the input's numbers unchanged.
            pub fn is_view(&self) -> bool {
                match self { $(Self::$name(op) => op.is_view(),)* }
            }

            /// Which axes move together.
            pub fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
                match self { $(Self::$name(op) => op.links(inputs, output),)* }
            }

            /// Multiply-adds of one forward pass.
            pub fn multiply_adds(&self, inputs: &[&[usize]], output: &[usize]) -> u64 {
                match self { $(Self::$name(op) => op.multiply_adds(inputs, output),)* }
            }
        }
    };
}

operators! {
    add::Add,
    average_pool::AveragePool,
    batch_normalization::BatchNormalization,
    clip::Clip,
    concat::Concat,
    conv::Conv,
    div::Div,
    dropout::Dropout,
    erf::Erf,
    flatten::Flatten,
    gather::Gather,
    gelu::Gelu,
    gemm::Gemm,
    global_average_pool::GlobalAveragePool,
    hard_sigmoid::HardSigmoid,
    hard_swish::HardSwish,
    identity::Identity,
    layer_normalization::LayerNormalization,
    leaky_relu::LeakyRelu,
    log_softmax::LogSoftmax,
    mat_mul::MatMul,
    max_pool::MaxPool,
    mul::Mul,
    p_relu::PRelu,
    pad::Pad,
    pow::Pow,
    reduce_mean::ReduceMean,
    relu::Relu,
    reshape::Reshape,
    resize::Resize,
    sigmoid::Sigmoid,
    slice::Slice,
    softmax::Softmax,
    sqrt::Sqrt,
    squeeze::Squeeze,
    sub::Sub,
    tanh::Tanh,
    transpose::Transpose,
    unsqueeze::Unsqueeze,
}

pub use crate::kernel::window::Window;
pub use pad::Border;

mod binary;
mod pool;
mod softmax_rows;
mod unary;
mod view;

impl Op {
    /// Whether its constants are weights, to be multiplied with what it reads.
    pub fn has_weights(&self) -> bool {
        matches!(
            self,
            Self::Conv(_) | Self::Gemm(_) | Self::MatMul(_) | Self::BatchNormalization(_) | Self::LayerNormalization(_)
        )
    }

    /// The shape of the output; an error if the number of inputs or their shapes do not fit.
    pub fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let (least, most) = self.arity();
        if inputs.count() > most {
            return Err(Error::model(format!("{} takes at most {most} tensors, not {}", self.name(), inputs.count())));
        }
        for i in 0..least {
            inputs.get(i)?;
        }
        self.output_shape(inputs)
    }
}
