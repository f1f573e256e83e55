//! Arithmetic on shapes. Exporters compute the target of a Reshape from `Shape`, `Gather`, `Concat` and the like; since
//! every size but the batch is known when a file is read, so are these values, with the batch size as a symbol.

use super::proto::data_type;
use super::tensors::is_integer;
use crate::op::node::{Attribute, Scalar, Static, to_f32, to_integer};
use crate::tensor::{Dim, Shape, normalize_axis};

/// Shapes have a handful of elements; nothing computed from them is much larger.
const MAX_COMPUTED: usize = 1 << 16;

/// The value of `Shape` applied to a tensor, between `start` and `end` as ONNX counts them.
pub(super) fn shape_of(shape: &Shape, start: i64, end: Option<i64>) -> Static {
    let rank = shape.rank();
    let place = |i: i64| {
        let i = if i < 0 {
            usize::try_from(i.unsigned_abs()).map_or(0, |i| rank.saturating_sub(i))
        } else {
            usize::try_from(i).unwrap_or(rank)
        };
        i.min(rank)
    };
    let range = place(start)..place(end.unwrap_or(i64::MAX)).max(place(start));
    let elements: Vec<Scalar> = shape.dims().get(range).unwrap_or_default().iter().map(|d| from_dim(*d)).collect();
    Static { shape: vec![elements.len()], elements, integer: true }
}

fn from_dim(dim: Dim) -> Scalar {
    #[allow(clippy::as_conversions)] // sizes are below 2³¹
    match dim {
        Dim::Fixed(n) => Scalar::Number(n as f64),
        Dim::Batch(k) => Scalar::Batch(k as f64),
    }
}

/// Computes `op` on constants; `None` if that is beyond shape arithmetic. One function for all operators: each
/// is one arm, they share the readers of attributes and inputs defined in front of them, and none calls another.
pub(super) fn evaluate(op: &str, attributes: &[(String, Attribute)], inputs: &[Option<Static>]) -> Option<Static> {
    let int = |name: &str| {
        attributes
            .iter()
            .find(|(n, _)| n == name)
            .and_then(|(_, a)| if let Attribute::Int(x) = a { Some(*x) } else { None })
    };
    let ints = |name: &str| {
        attributes
            .iter()
            .find(|(n, _)| n == name)
            .and_then(|(_, a)| if let Attribute::Ints(x) = a { Some(x.clone()) } else { None })
    };
    let input = |i: usize| inputs.get(i).and_then(Option::as_ref);
    let integers =
        |i: usize| -> Option<Vec<i64>> { input(i)?.numbers()?.into_iter().map(|x| to_integer(x).ok()).collect() };
    let x = input(0)?;
    let value = match op {
        "Identity" => x.clone(),
        "Cast" => {
            let to = i32::try_from(int("to")?).ok()?;
            let elements = x.elements.iter().map(|e| cast(*e, to)).collect::<Option<_>>()?;
            Static { elements, integer: is_integer(to), ..x.clone() }
        }
        "Floor" | "Ceil" | "Neg" => {
            let apply = |e: &Scalar| match (op, *e) {
                ("Floor", Scalar::Number(n)) => Some(Scalar::Number(n.floor())),
                ("Ceil", Scalar::Number(n)) => Some(Scalar::Number(n.ceil())),
                ("Neg", Scalar::Number(n)) => Some(Scalar::Number(-n)),
                ("Floor" | "Ceil", Scalar::Batch(k)) if k.fract() == 0.0 => Some(Scalar::Batch(k)),
                _ => None,
            };
            Static { elements: x.elements.iter().map(apply).collect::<Option<_>>()?, ..x.clone() }
        }
        "Squeeze" | "Unsqueeze" => {
            let axes = ints("axes").or_else(|| integers(1));
            let mut shape = x.shape.clone();
            if op == "Squeeze" {
                let axes = axes
                    .map(|list| list.iter().map(|&a| normalize_axis(a, shape.len()).ok()).collect::<Option<Vec<_>>>());
                let axes = match axes {
                    Some(axes) => axes?,
                    None => (0..shape.len()).filter(|&i| shape.get(i) == Some(&1)).collect(),
                };
                shape = shape.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, &n)| n).collect();
            } else {
                let rank = shape.len() + axes.as_ref()?.len();
                let mut axes = axes?.iter().map(|&a| normalize_axis(a, rank).ok()).collect::<Option<Vec<_>>>()?;
                axes.sort_unstable();
                for axis in axes {
                    if axis > shape.len() {
                        return None;
                    }
                    shape.insert(axis, 1);
                }
            }
            let count = shape.iter().try_fold(1usize, |p, &n| p.checked_mul(n))?;
            (count == x.elements.len()).then(|| Static { shape, ..x.clone() })?
        }
        "Reshape" => {
            let target = integers(1)?;
            let known: usize =
                target.iter().filter(|&&n| n > 0).try_fold(1usize, |p, &n| p.checked_mul(usize::try_from(n).ok()?))?;
            let shape: Vec<usize> = target
                .iter()
                .map(|&n| if n == -1 { x.elements.len().checked_div(known) } else { usize::try_from(n).ok() })
                .collect::<Option<_>>()?;
            let count = shape.iter().try_fold(1usize, |p, &n| p.checked_mul(n))?;
            (count == x.elements.len()).then(|| Static { shape, ..x.clone() })?
        }
        "Concat" => {
            let parts: Vec<&Static> = inputs.iter().map(Option::as_ref).collect::<Option<_>>()?;
            if parts.iter().any(|p| p.shape.len() != 1) {
                return None;
            }
            let elements: Vec<Scalar> =
                parts.iter().flat_map(|p| p.elements.iter().copied()).take(MAX_COMPUTED + 1).collect();
            Static { shape: vec![elements.len()], elements, integer: x.integer }
        }
        "Gather" => {
            if x.shape.len() != 1 || int("axis").unwrap_or(0) != 0 {
                return None;
            }
            let pick = |&i: &i64| x.elements.get(normalize_axis(i, x.elements.len()).ok()?).copied();
            let elements = integers(1)?.iter().map(pick).collect::<Option<_>>()?;
            Static { shape: input(1)?.shape.clone(), elements, integer: x.integer }
        }
        "Slice" => {
            let starts = ints("starts").or_else(|| integers(1))?;
            let ends = ints("ends").or_else(|| integers(2))?;
            let axes = ints("axes").or_else(|| integers(3));
            // An input that is there but depends on the batch is not the same as none.
            if input(3).is_some() != (axes.is_some() && ints("axes").is_none())
                || input(4).is_some() != integers(4).is_some()
            {
                return None;
            }
            let axes = axes.unwrap_or_else(|| (0..).take(starts.len()).collect());
            let steps = integers(4).unwrap_or_else(|| vec![1; starts.len()]);
            if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
                return None;
            }
            let (mut shape, mut strides, mut offset) = (x.shape.clone(), strides(&x.shape)?, 0i64);
            for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
                let axis = normalize_axis(*axis, shape.len()).ok()?;
                let (size, stride) = (shape.get_mut(axis)?, strides.get_mut(axis)?);
                let len = i64::try_from(*size).ok()?;
                let wrap = |i: i64| if i < 0 { i.saturating_add(len) } else { i };
                let (start, span) = match step {
                    1.. => (wrap(*start).clamp(0, len), wrap(*end).clamp(0, len) - wrap(*start).clamp(0, len)),
                    0 => return None,
                    _ => {
                        let start = wrap(*start).clamp(-1, len - 1);
                        (start, start - wrap(*end).clamp(-1, len - 1))
                    }
                };
                *size = usize::try_from(u64::try_from(span).unwrap_or(0).div_ceil(step.unsigned_abs())).ok()?;
                offset += start.max(0).checked_mul(*stride)?;
                *stride = stride.checked_mul(*step)?;
            }
            Static { elements: strided(&x.elements, &shape, &strides, offset)?, shape, integer: x.integer }
        }
        "Transpose" => {
            let order = ints("perm")
                .unwrap_or_else(|| (0..).take(x.shape.len()).collect::<Vec<i64>>().into_iter().rev().collect());
            let order = order.iter().map(|&a| normalize_axis(a, x.shape.len()).ok()).collect::<Option<Vec<_>>>()?;
            let own = strides(&x.shape)?;
            let shape: Vec<usize> = order.iter().map(|&a| x.shape.get(a).copied()).collect::<Option<_>>()?;
            let steps: Vec<i64> = order.iter().map(|&a| own.get(a).copied()).collect::<Option<_>>()?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..x.shape.len()).then_some(())?;
            Static { elements: strided(&x.elements, &shape, &steps, 0)?, shape, integer: x.integer }
        }
        "ReduceProd" => {
            // All axes, or the only one.
            if x.shape.len() > 1 && (ints("axes").is_some() || input(1).is_some()) {
                return None;
            }
            let product = x.elements.iter().try_fold(Scalar::Number(1.0), |p, &e| combine("Mul", p, e, false))?;
            let keep = int("keepdims").unwrap_or(1) != 0;
            Static {
                shape: if keep { vec![1; x.shape.len()] } else { vec![] },
                elements: vec![product],
                integer: x.integer,
            }
        }
        "ConstantOfShape" => {
            let shape = integers(0)?.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>()?;
            let count = shape.iter().try_fold(1usize, |p, &n| p.checked_mul(n)).filter(|&n| n <= MAX_COMPUTED)?;
            // The value itself is a tensor attribute, which the reader passes as a second input.
            let value = input(1).and_then(|v| v.elements.first().copied()).unwrap_or(Scalar::Number(0.0));
            Static { shape, elements: vec![value; count], integer: input(1).is_some_and(|v| v.integer) }
        }
        "Expand" => {
            let shape = integers(1)?.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>()?;
            let count = shape.iter().try_fold(1usize, |p, &n| p.checked_mul(n)).filter(|&n| n <= MAX_COMPUTED)?;
            match x.elements.as_slice() {
                &[one] if count > 0 => Static { shape, elements: vec![one; count], integer: x.integer },
                // The target is the shape it has, or all ones (which change nothing).
                _ if shape == x.shape || count == 1 && shape.len() <= x.shape.len() => x.clone(),
                _ => return None,
            }
        }
        "Where" => {
            let (yes, no) = (input(1)?, input(2)?);
            let choose = |i: usize| {
                let at = |s: &Static| s.elements.get(if s.elements.len() == 1 { 0 } else { i }).copied();
                match at(x)? {
                    Scalar::Number(0.0) => at(no),
                    Scalar::Number(_) => at(yes),
                    Scalar::Batch(_) => None,
                }
            };
            let mut largest = x.clone();
            for other in [yes, no] {
                let shape = common_shape(&largest, other)?;
                let bigger = if other.elements.len() > largest.elements.len() { other.clone() } else { largest };
                largest = Static { shape, ..bigger };
            }
            let elements = (0..largest.elements.len()).map(choose).collect::<Option<_>>()?;
            Static { shape: largest.shape.clone(), elements, integer: yes.integer }
        }
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Min" | "Max" | "Equal" => {
            let y = input(1).filter(|_| inputs.len() == 2)?;
            if attributes.iter().any(|(name, value)| name == "fmod" && *value != Attribute::Int(0)) {
                return None;
            }
            let shape = common_shape(x, y)?;
            let count = x.elements.len().max(y.elements.len());
            let integer = x.integer && y.integer;
            let at = |s: &Static, i: usize| s.elements.get(if s.elements.len() == 1 { 0 } else { i }).copied();
            let elements = (0..count).map(|i| combine(op, at(x, i)?, at(y, i)?, integer)).collect::<Option<_>>()?;
            Static { shape, elements, integer: integer || op == "Equal" }
        }
        _ => return None,
    };
    (value.elements.len() <= MAX_COMPUTED).then_some(value)
}

/// A scalar as another type; `None` where the result would not be the same number (an overflow, say).
fn cast(value: Scalar, to: i32) -> Option<Scalar> {
    let number = match value {
        // The batch size itself has no fraction and fits everything but truth values and small integers.
        Scalar::Batch(k) => {
            let wide = [data_type::INT64, data_type::INT32, data_type::FLOAT, data_type::DOUBLE].contains(&to);
            return (wide && (k.fract() == 0.0 || !is_integer(to))).then_some(value);
        }
        Scalar::Number(n) => n,
    };
    let whole = number.trunc();
    Some(Scalar::Number(match to {
        data_type::DOUBLE => number,
        data_type::FLOAT => f64::from(to_f32(number)),
        data_type::FLOAT16 => half::f16::from_f64(number).to_f64(),
        data_type::BFLOAT16 => half::bf16::from_f64(number).to_f64(),
        data_type::BOOL => f64::from(u8::from(number != 0.0)),
        data_type::INT64 if !number.is_nan() => whole,
        data_type::INT32 if (-2_147_483_648.0..2_147_483_648.0).contains(&whole) => whole,
        data_type::UINT8 if (0.0..256.0).contains(&whole) => whole,
        _ => return None,
    }))
}

/// The shape of two operands of which one is a single element, or which are equal.
fn common_shape(x: &Static, y: &Static) -> Option<Vec<usize>> {
    let (large, small) = if x.elements.len() >= y.elements.len() { (x, y) } else { (y, x) };
    if x.shape == y.shape {
        return Some(x.shape.clone());
    }
    if small.elements.len() != 1 {
        return None;
    }
    let missing = small.shape.len().saturating_sub(large.shape.len());
    Some(std::iter::repeat_n(1, missing).chain(large.shape.iter().copied()).collect())
}

/// The distance between neighbours along each axis of a row-major tensor.
fn strides(shape: &[usize]) -> Option<Vec<i64>> {
    let mut list = Vec::new();
    let mut stride = 1i64;
    for &len in shape.iter().rev() {
        list.push(stride);
        stride = stride.checked_mul(i64::try_from(len).ok()?)?;
    }
    list.reverse();
    Some(list)
}

/// The elements at `offset` + Σ index · stride, for all indices below `shape`, in row-major order.
fn strided(elements: &[Scalar], shape: &[usize], strides: &[i64], offset: i64) -> Option<Vec<Scalar>> {
    let count = shape.iter().try_fold(1usize, |p, &n| p.checked_mul(n)).filter(|&n| n <= MAX_COMPUTED)?;
    let at = |mut index: usize| {
        let mut place = offset;
        for (&len, &stride) in shape.iter().zip(strides).rev() {
            place = place.checked_add(i64::try_from(index % len).ok()?.checked_mul(stride)?)?;
            index /= len;
        }
        elements.get(usize::try_from(place).ok()?).copied()
    };
    (0..count).map(at).collect()
}

/// Two scalars, as far as the result is a number or a multiple of the batch size.
fn combine(op: &str, a: Scalar, b: Scalar, integer: bool) -> Option<Scalar> {
    use Scalar::{Batch, Number};
    let divide = |a: f64, b: f64| {
        let quotient = a / b;
        (b != 0.0).then_some(if integer { quotient.trunc() } else { quotient })
    };
    Some(match (op, a, b) {
        ("Add", Number(a), Number(b)) => Number(a + b),
        ("Add", Batch(a), Batch(b)) => Batch(a + b),
        ("Add" | "Sub", a, Number(0.0)) => a,
        ("Sub", Number(a), Number(b)) => Number(a - b),
        ("Mul", Number(a), Number(b)) => Number(a * b),
        ("Mul", Batch(a), Number(b)) | ("Mul", Number(a), Batch(b)) => Batch(a * b),
        ("Div", Number(a), Number(b)) => Number(divide(a, b)?),
        ("Div", Batch(a), Number(b)) if !integer || (a / b).fract() == 0.0 => Batch(divide(a, b)?),
        ("Div", Batch(a), Batch(b)) if !integer || (a / b).fract() == 0.0 => Number(divide(a, b)?),
        ("Mod", Number(a), Number(b)) if b != 0.0 && integer => Number(a - b * (a / b).floor()),
        ("Min", Number(a), Number(b)) => Number(a.min(b)),
        ("Max", Number(a), Number(b)) => Number(a.max(b)),
        ("Equal", Number(a), Number(b)) => Number(f64::from(a == b)),
        // The batch size is at least one, so a multiple of it is never −1 or 0.
        ("Equal", Batch(_), Number(b)) | ("Equal", Number(b), Batch(_)) if b <= 0.0 => Number(0.0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: &[f64]) -> Option<Static> {
        Some(Static {
            shape: vec![values.len()],
            elements: values.iter().map(|&x| Scalar::Number(x)).collect(),
            integer: true,
        })
    }

    #[test]
    fn the_batch_stays_a_symbol_through_a_flatten() {
        // x.view(x.size(0), -1) as the TorchScript exporter writes it.
        let x = Shape::new(vec![Dim::Batch(1), Dim::Fixed(16), Dim::Fixed(5), Dim::Fixed(5)]).unwrap();
        let shape = shape_of(&x, 0, None);
        let zero = Some(Static { shape: vec![], elements: vec![Scalar::Number(0.0)], integer: true });
        let batch = evaluate("Gather", &[("axis".into(), Attribute::Int(0))], &[Some(shape), zero]);
        let batch = evaluate("Unsqueeze", &[("axes".into(), Attribute::Ints(vec![0]))], &[batch]);
        let target = evaluate("Concat", &[("axis".into(), Attribute::Int(0))], &[batch, ints(&[-1.0])]).unwrap();
        assert_eq!(target.elements, [Scalar::Batch(1.0), Scalar::Number(-1.0)]);
    }

    #[test]
    fn arithmetic_that_needs_the_batch_size_is_refused() {
        let batch = Some(Static { shape: vec![1], elements: vec![Scalar::Batch(1.0)], integer: true });
        assert_eq!(evaluate("Add", &[], &[batch.clone(), ints(&[1.0])]), None);
        assert_eq!(evaluate("Div", &[], &[batch.clone(), ints(&[2.0])]), None);
        assert_eq!(evaluate("Div", &[], &[ints(&[7.0]), ints(&[-2.0])]), ints(&[-3.0]));
        assert_eq!(evaluate("Div", &[], &[ints(&[7.0]), ints(&[0.0])]), None);
    }

    #[test]
    fn the_paddings_of_an_unfolded_export() {
        // torch.nn.functional.pad: pairs from the last axis on, turned around by Reshape, Slice and Transpose.
        let pads = evaluate("Reshape", &[], &[ints(&[1., 2., 0., 3., 0., 0., 0., 0.]), ints(&[-1., 2.])]);
        let lowest = -9.2e18;
        let slice = [pads, ints(&[-1.]), ints(&[lowest]), ints(&[0.]), ints(&[-1.])];
        let turned = evaluate("Slice", &[], &slice);
        assert_eq!(turned.as_ref().unwrap().shape, [4, 2]);
        let columns = evaluate("Transpose", &[("perm".into(), Attribute::Ints(vec![1, 0]))], &[turned]);
        let flat = evaluate("Reshape", &[], &[columns, ints(&[-1.])]);
        assert_eq!(flat, ints(&[0., 0., 0., 1., 0., 0., 3., 2.]));
    }

    #[test]
    fn arithmetic_is_onnxs() {
        let shaped = |values: &[f64], shape: &[usize]| ints(values).map(|s| Static { shape: shape.to_vec(), ..s });
        let to = |t: i32| [("to".to_owned(), Attribute::Int(t.into()))];
        // The remainder has the divisor's sign; with fmod it would have the dividend's.
        assert_eq!(evaluate("Mod", &[], &[ints(&[7., -7.]), ints(&[-2.])]), ints(&[-1., -1.]));
        assert_eq!(evaluate("Mod", &[("fmod".into(), Attribute::Int(1))], &[ints(&[7.]), ints(&[2.])]), None);
        assert_eq!(evaluate("Cast", &to(data_type::BOOL), &[ints(&[5., 0., -3.])]), ints(&[1., 0., 1.]));
        assert_eq!(evaluate("Cast", &to(data_type::UINT8), &[ints(&[300.])]), None);
        let half = evaluate("Cast", &to(data_type::FLOAT16), &[ints(&[70000.])]).unwrap();
        assert_eq!(half.elements, [Scalar::Number(f64::INFINITY)]);
        // One element takes any shape, with all its axes; other shapes are left alone.
        assert_eq!(
            evaluate("Mul", &[], &[shaped(&[2.], &[1, 1]), ints(&[3., 4., 5.])]),
            shaped(&[6., 8., 10.], &[1, 3])
        );
        assert_eq!(evaluate("Div", &[], &[shaped(&[7., 9.], &[2, 1]), shaped(&[2., 4.], &[1, 2])]), None);
        assert_eq!(
            evaluate("Where", &[], &[shaped(&[1., 0.], &[2, 1]), shaped(&[1., 2.], &[1, 2]), ints(&[0.])]),
            None
        );
        let axes = [("axes".to_owned(), Attribute::Ints(vec![0]))];
        assert_eq!(evaluate("ReduceProd", &axes, &[shaped(&[1., 2., 3., 4.], &[2, 2])]), None);
        let twice = [("perm".to_owned(), Attribute::Ints(vec![0, 0]))];
        assert_eq!(evaluate("Transpose", &twice, &[shaped(&[1., 2., 3., 4.], &[2, 2])]), None);
    }

    #[test]
    fn hostile_sizes_are_refused() {
        assert_eq!(evaluate("ConstantOfShape", &[], &[ints(&[1e12, 1e12])]), None);
        assert_eq!(shape_of(&Shape::fixed(&[2, 3]).unwrap(), i64::MIN, Some(i64::MAX)).elements.len(), 2);
        assert_eq!(shape_of(&Shape::fixed(&[2, 3]).unwrap(), -1, None).elements, [Scalar::Number(3.0)]);
    }
}
