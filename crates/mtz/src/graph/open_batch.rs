//! From a network for one batch size to the same network for any.
//!
//! A file with a fixed batch size says so in its input, in the targets of `Reshape` and in constants that stand beside
//! samples. All are opened here; the shape rules refuse every operator that would mix samples, so the result computes
//! the same for each sample.

use super::{Graph, Node, Rebuild, ValueId};
use crate::error::{Error, Result};
use crate::op::node::from_size;
use crate::op::{Add, Border, Concat, Op, Pad};
use crate::tensor::{Dim, Shape, Tensor};

impl Graph {
    /// The same network for any batch size, if its inputs have a fixed first dimension that all operators carry
    /// through; otherwise the network unchanged.
    pub fn with_open_batch(&self) -> Self {
        self.open_batch().unwrap_or_else(|_| self.clone())
    }

    /// The same network for any batch size; an error if that cannot be.
    pub fn open_batch(&self) -> Result<Self> {
        let is_open = |id: &ValueId| self[*id].shape.dims().first() == Some(&Dim::Batch(1));
        if self.inputs.iter().all(is_open) {
            return Ok(self.clone());
        }
        let refused = |why: String| {
            let inputs = self.inputs.iter().find(|id| !is_open(id)).map(|id| &self[*id]);
            let (name, shape) = inputs.map_or_else(Default::default, |v| (v.name.clone(), v.shape.to_string()));
            let what = format!("the batch size of input {name:?} is fixed, {shape}, and cannot be opened: {why}");
            Error::unsupported(what).hint(
                "export the model with an open batch size: \
                 dynamic_shapes={\"x\": {0: Dim(\"n\")}} or dynamic_axes={\"x\": {0: \"n\"}}",
            )
        };
        let batch = self.fixed_batch().ok_or_else(|| refused("inputs have batches of different sizes".to_owned()))?;
        let open = |shape: &Shape| shape.with_dim(0, Dim::Batch(1)).unwrap_or_else(|_| shape.clone());
        let graph = self.rebuild(|input| open(&input.shape), |build, node| build.open(node, batch));
        let graph = graph.map_err(|e| refused(e.to_string()))?;
        for &id in &graph.outputs {
            let opened = match graph[id].shape.dims() {
                [Dim::Batch(1), rest @ ..] => rest.iter().all(|d| d.fixed().is_some()),
                _ => false,
            };
            if !opened {
                return Err(refused(format!("output {:?} would be {}", graph[id].name, graph[id].shape)));
            }
        }
        Ok(graph)
    }

    /// The batch size, if it is fixed: the first dimension of every input.
    pub fn fixed_batch(&self) -> Option<usize> {
        let mut batches = self.inputs.iter().map(|id| self[*id].shape.dims().first().and_then(|d| d.fixed()));
        let first = batches.next()??;
        batches.all(|b| b == Some(first)).then_some(first)
    }
}

impl Rebuild<'_> {
    /// The node for any batch size, where it was made for one.
    fn open(&mut self, node: &Node, batch: usize) -> Result<ValueId> {
        let inputs = self.inputs(node)?;
        let shapes: Vec<&Shape> = inputs.iter().flatten().map(|id| &self.new[*id].shape).collect();
        let mut node = node.clone();
        match &mut node.op {
            Op::Reshape(reshape) => {
                if let Some(target) = shapes.first().and_then(|x| opened(x, &self.old[node.output].shape, batch)) {
                    reshape.target = target;
                }
            }
            Op::Concat(concat)
                if concat.axis > 0 && shapes.iter().any(|s| s.dims().first() == Some(&Dim::Batch(1))) =>
            {
                let axis = concat.axis;
                return self.concat_constants(&node, axis, &inputs, batch);
            }
            _ => {}
        }
        self.copy(&node)
    }

    /// Tensors in a row, of which some are constants that stand beside every sample (a class token, say): the others
    /// with zeros in their places, and the constants added there.
    fn concat_constants(
        &mut self,
        node: &Node,
        axis: usize,
        inputs: &[Option<ValueId>],
        batch: usize,
    ) -> Result<ValueId> {
        let constant = |id: &ValueId| self.new[*id].constant.as_ref().filter(|t| t.shape().first() == Some(&batch));
        let ids: Vec<ValueId> = inputs.iter().flatten().copied().collect();
        if !ids.iter().any(|id| constant(id).is_some()) {
            return self.copy(node);
        }
        let whole = self.old[node.output].shape.at(1);
        let (outer, len) = (whole.iter().take(axis).skip(1).product::<usize>(), whole.get(axis).copied().unwrap_or(1));
        let inner = whole.iter().skip(axis + 1).product::<usize>();
        let mut added = vec![0.0; outer * len * inner];
        let (mut place, mut computed, mut ranges) = (0, Vec::new(), Vec::new());
        for id in ids {
            let own = self.new[id].shape.dim(axis)?.fixed().unwrap_or(0);
            if let Some(tensor) = constant(&id) {
                let size = tensor.data().len() / batch.max(1);
                let (first, _) = tensor.data().split_at(size);
                if tensor.data().chunks(size.max(1)).any(|sample| sample != first) {
                    return Err(
                        Error::unsupported("a constant differs between the samples of a batch").at_node(&node.name)
                    );
                }
                for (row, numbers) in first.chunks((own * inner).max(1)).enumerate() {
                    let at = (row * len + place) * inner;
                    added.get_mut(at..at + numbers.len()).into_iter().for_each(|to| to.copy_from_slice(numbers));
                }
            } else {
                computed.push(Some(id));
                ranges.push((place, own));
            }
            place += own;
        }
        // What is computed must stand together: zeros go before and after it.
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return self.copy(node) };
        if ranges.windows(2).any(|pair| matches!(pair, [a, b] if a.0 + a.1 != b.0)) {
            return Err(Error::unsupported("constants stand between what is computed").at_node(&node.name));
        }
        let widths = (0..whole.len()).map(|i| if i == axis { (first.0, len - last.0 - last.1) } else { (0, 0) });
        let widths = widths.map(|(before, after)| (from_size(before), from_size(after))).collect();
        let name = |part: &str| format!("{}.{part}", node.name);
        let rows = match computed.as_slice() {
            &[Some(one)] => one,
            _ => self.new.add_node(name("rows"), Concat { axis }, computed, name("rows"))?,
        };
        let pad = Pad { widths, border: Border::Constant(0.0) };
        let padded = self.new.add_node(name("pad"), pad, vec![Some(rows)], name("pad"))?;
        let shape = [1].into_iter().chain(whole.iter().skip(1).copied()).collect();
        let added = self.new.add_constant(name("constants"), Tensor::new(shape, added)?)?;
        let output = self.old[node.output].name.clone();
        self.new.add_node(node.name.clone(), Add, vec![Some(padded), Some(added)], output)
    }
}

/// The target of a `Reshape` that made `to` of `batch` samples, now that they are as many as one likes.
fn opened(from: &Shape, to: &Shape, batch: usize) -> Option<Vec<Option<usize>>> {
    let axis = from.dims().iter().position(|d| matches!(d, Dim::Batch(_)))?;
    let to: Vec<usize> = to.dims().iter().map(|d| d.fixed()).collect::<Option<_>>()?;
    let before = from.dims().iter().take(axis).try_fold(1usize, |n, d| n.checked_mul(d.at(batch)))?;
    let through = |axes: usize| to.iter().take(axes).try_fold(1usize, |n, &d| n.checked_mul(d));
    // The batch comes after `before` numbers; the axis that has it must begin there or earlier, and end behind it.
    let fits = |j: &usize| {
        let (begin, end) = (through(*j)?, through(j + 1)?);
        (begin > 0 && before % begin == 0 && end % before.checked_mul(batch)? == 0).then_some(())
    };
    let candidates: Vec<usize> = (0..to.len()).filter(|j| fits(j).is_some()).collect();
    let begins = |j: &&usize| through(**j) == Some(before);
    let same = |j: &&usize| begins(j) && to.get(**j).copied() == from.dims().get(axis).map(|d| d.at(batch));
    // Axes that are joined join with what is in front of them (positions of all samples), axes that are split begin
    // where they began.
    let merged = to.len() < from.rank();
    let own = candidates.iter().find(|j| **j == axis).filter(same).or_else(|| candidates.iter().find(same));
    let split = || candidates.iter().find(begins).filter(|_| !merged);
    let chosen = *own.or_else(split).or_else(|| candidates.first())?;
    Some(to.iter().enumerate().map(|(j, &n)| if j == chosen { None } else { Some(n) }).collect())
}
