//! `Reshape`: the same numbers under another shape, which is known when the model is read, the batch size aside.

use super::axes::{AxisLink, reshape};
use super::node::{ConstantForm, NodeForm, NodeSpec, Scalar, from_size, to_integer, to_size};
use super::{Operator, Shapes};
use super::view::hand_numbers_on;
use crate::error::{Error, Result};
use crate::tensor::{Dim, Shape};

/// The same numbers under another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// The new dimensions; what is left of the batch fills the one that is [`None`].
    pub target: Vec<Option<usize>>,
}

/// The product of dimensions as one dimension.
pub(crate) fn merged(dims: &[Dim]) -> Result<Dim> {
    dims.iter().try_fold(Dim::Fixed(1), |product, &dim| match (product, dim) {
        (Dim::Fixed(a), Dim::Fixed(b)) => Ok(Dim::Fixed(a.saturating_mul(b))),
        (Dim::Fixed(a), Dim::Batch(b)) | (Dim::Batch(a), Dim::Fixed(b)) => Ok(Dim::Batch(a.saturating_mul(b))),
        (Dim::Batch(_), Dim::Batch(_)) => Err(Error::unsupported("two batch axes are merged")),
    })
}

impl Reshape {
    /// The target for a known output shape.
    pub fn to(shape: &Shape) -> Self {
        Self { target: shape.dims().iter().map(|d| d.fixed()).collect() }
    }
}

impl Operator for Reshape {
    const NAME: &'static str = "Reshape";
    const INPUTS: (usize, usize) = (1, 1);

    fn read(node: &mut NodeSpec) -> Result<Self> {
        let zero_is_zero = node.flag("allowzero")?;
        let x = node.shape(0)?;
        let target = node.constant(1)?.ok_or_else(|| Error::model("the target shape is missing"))?;
        let mut dims = Vec::new();
        for (axis, element) in target.elements.iter().enumerate() {
            dims.push(match *element {
                Scalar::Batch(k) => Some(Dim::Batch(to_size(to_integer(k)?, "target")?)),
                Scalar::Number(n) => match to_integer(n)? {
                    -1 => None,
                    0 if !zero_is_zero => Some(x.dim(axis)?),
                    n => Some(Dim::Fixed(to_size(n, "target")?)),
                },
            });
        }
        // Resolve −1 now, so that the graph only keeps sizes and at most one place for the batch.
        let rest = if dims.contains(&None) {
            let known = Shape::new(dims.iter().flatten().copied().collect())?;
            let ((have, have_power), (take, take_power)) = (x.product(), known.product());
            let fits = take > 0 && have % take == 0 && dims.iter().filter(|d| d.is_none()).count() == 1;
            match (fits, have_power.checked_sub(take_power)) {
                (true, Some(0)) => Dim::Fixed(have / take),
                (true, Some(1)) => Dim::Batch(have / take),
                _ => return Err(Error::model(format!("{x} cannot be reshaped to {:?}", target.elements))),
            }
        } else {
            Dim::Fixed(1)
        };
        Ok(Self::to(&Shape::new(dims.into_iter().map(|d| d.unwrap_or(rest)).collect())?))
    }

    fn write(&self, form: &mut NodeForm) {
        form.constant(ConstantForm::Ints(self.target.iter().map(|d| d.map_or(-1, from_size)).collect()));
    }

    fn shape(&self, inputs: &Shapes) -> Result<Shape> {
        let x = inputs.get(0)?;
        let (have, power) = x.product();
        let fixed = self.target.iter().flatten().try_fold(1usize, |n, &d| n.checked_mul(d));
        let open = self.target.iter().filter(|d| d.is_none()).count();
        let error = || Error::model(format!("{x} cannot be reshaped to {:?}", self.target));
        let rest = match (fixed, open, power) {
            (Some(n), 0, 0) if n == have => Dim::Fixed(1),
            (Some(n), 1, 0) if n > 0 && have % n == 0 => Dim::Fixed(have / n),
            (Some(n), 1, 1) if n > 0 && have % n == 0 => Dim::Batch(have / n),
            (Some(_), 0, 1) => {
                return Err(Error::unsupported(format!("{x} is reshaped to a shape without batch axis")));
            }
            _ => return Err(error()),
        };
        Shape::new(self.target.iter().map(|d| d.map_or(rest, Dim::Fixed)).collect())
    }

    hand_numbers_on!();

    fn links(&self, inputs: &[&[usize]], output: &[usize]) -> Vec<AxisLink> {
        reshape(inputs[0], output)
    }
}
