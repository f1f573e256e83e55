//! Ties between the networks of a joint model while it is trained: what several tasks share is one parameter.

use super::parameters::{Binding, Bindings, Parameters};
use crate::error::{Error, Result};
use crate::graph::ValueId;
use crate::sharing::{Joint, Member};
use std::collections::BTreeSet;

/// Parameters in which shared weights are one number, and how each task's network uses them.
pub fn bind(joint: &Joint) -> Result<(Parameters, Vec<Bindings>)> {
    let mut parameters = Parameters::new();
    let mut bindings: Vec<Bindings> = Vec::new();
    let bound: Vec<BTreeSet<ValueId>> = joint
        .members
        .iter()
        .map(|m| m.layers.iter().flat_map(|l| std::iter::once(l.weight).chain(l.bias)).collect())
        .collect();
    for (member, bound) in joint.members.iter().zip(&bound) {
        // Everything that is not in a layer belongs to the task alone.
        bindings.push(Bindings::of_some(&member.graph, &mut parameters, |id| !bound.contains(&id)));
    }
    for layer in 0..joint.depth() {
        let (columns, count) = joint.numbered_columns(layer);
        let rows: Vec<Vec<f32>> = joint.members.iter().map(|m| m.layers[layer].read(&m.graph)).collect();
        let dense: Vec<bool> = joint.members.iter().map(|m| !m.layers[layer].is_sparse(&m.graph)).collect();
        let (mut data, mut bias_data) = (Vec::new(), Vec::new());
        // In a sparse layer a zero is no connection and stays one.
        let mut exists = Vec::new();
        let of = |m: &Member| {
            let at = &m.layers[layer];
            (vec![0u32; at.units * at.columns()], vec![0u32; at.units])
        };
        let mut uses: Vec<(Vec<u32>, Vec<u32>)> = joint.members.iter().map(of).collect();
        // Where a unit's weight of a column is among the parameters, once somebody has it.
        let mut known: Vec<Option<usize>> = vec![None; count];
        for places in joint.places(layer).values() {
            known.fill(None);
            let bias = small(bias_data.len())?;
            let offset = joint.bias_owner(layer, places.iter().copied()).map(|(t, unit)| {
                let width = joint.members[t].layers[layer].columns() + 1;
                rows[t][unit * width + width - 1]
            });
            bias_data.push(offset.unwrap_or(0.0));
            for &(t, unit) in places {
                let at = &joint.members[t].layers[layer];
                let row = &rows[t][unit * (at.columns() + 1)..][..at.columns() + 1];
                for (k, &column) in columns[t].iter().take(at.columns()).enumerate() {
                    let index = *known[column].get_or_insert_with(|| {
                        data.push(row[k]);
                        exists.push(row[k] != 0.0);
                        data.len() - 1
                    });
                    exists[index] |= dense[t];
                    uses[t].0[at.place(unit, k)] = small(index)?;
                }
                uses[t].1[unit] = bias;
            }
        }
        let (weight, bias) = (parameters.add(data, true), parameters.add(bias_data, false));
        if exists.contains(&false) {
            parameters.set_mask(weight, &exists)?;
        }
        for ((member, bindings), (indices, bias_indices)) in joint.members.iter().zip(&mut bindings).zip(uses) {
            bindings.bind(member.layers[layer].weight, Binding::Elements(weight, indices.into()));
            if let Some(id) = member.layers[layer].bias {
                bindings.bind(id, Binding::Elements(bias, bias_indices.into()));
            }
        }
    }
    Ok((parameters, bindings))
}

fn small(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| Error::limit("a layer has more than four thousand million weights"))
}
