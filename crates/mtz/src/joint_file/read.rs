//! From the file back to a joint model: who shares what stands in the metadata.

use super::{KEY, VERSION};
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::sharing::{Joint, Layer, Member};
use crate::simplify;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// The joint model in a graph, if it is one.
pub fn from_graph(graph: &Graph) -> Result<Option<Joint>> {
    let Some((_, text)) = graph.metadata.iter().find(|(key, _)| key == KEY) else { return Ok(None) };
    let broken = || Error::model("the description of the joint model is damaged");
    let json: Json = serde_json::from_str(text).map_err(|_| broken())?;
    if json["version"].as_u64() != Some(VERSION) {
        return Err(Error::unsupported("the joint model was written by another version of mtz"));
    }
    let mut members: Vec<Member> = Vec::new();
    for task in json["tasks"].as_array().ok_or_else(broken)? {
        let name = task["name"].as_str().ok_or_else(broken)?.to_owned();
        let outputs: Option<Vec<ValueId>> =
            task["outputs"].as_array().ok_or_else(broken)?.iter().map(|o| graph.find(o.as_str()?)).collect();
        let part = graph.up_to(&outputs.ok_or_else(broken)?)?;
        let plain = simplify::for_zipping(&part)?;
        let plain = without_prefix(&plain, &format!("{name}/"))?;
        let layers = Layer::all(&plain)?;
        let described = task["layers"].as_array().ok_or_else(broken)?;
        let numbers = |key: &str| -> Result<Vec<Vec<usize>>> {
            let number = |u: &Json| u.as_u64().and_then(|u| usize::try_from(u).ok());
            let of = |l: &Json| l[key].as_array()?.iter().map(number).collect::<Option<Vec<usize>>>();
            let numbers = described.iter().map(of).collect::<Option<Vec<_>>>().ok_or_else(broken)?;
            let distinct = |u: &Vec<usize>| u.iter().collect::<BTreeSet<_>>().len() == u.len();
            let fits = numbers.len() == layers.len()
                && numbers.iter().zip(&layers).all(|(u, l)| u.len() == l.units && distinct(u));
            if fits { Ok(numbers) } else { Err(broken()) }
        };
        let (units, aligned) = (numbers("units")?, numbers("aligned")?);
        if members.iter().any(|m| m.name == name || m.layers.len() != layers.len()) {
            return Err(broken());
        }
        members.push(Member { name, graph: plain, layers, units, aligned });
    }
    if members.is_empty() {
        return Err(broken());
    }
    number_densely(&mut members);
    Ok(Some(Joint { members }))
}

/// Numbers from 0 on in the same order, equal where they were equal.
fn densely(numbers: Vec<&mut Vec<usize>>) {
    let all: BTreeSet<usize> = numbers.iter().flat_map(|own| own.iter().copied()).collect();
    let dense: BTreeMap<usize, usize> = all.into_iter().enumerate().map(|(i, number)| (number, i)).collect();
    numbers.into_iter().flatten().for_each(|number| *number = dense.get(number).copied().unwrap_or(0));
}

/// Numbers of units in a file may be anything; only which are equal counts. From here on they are small.
fn number_densely(members: &mut [Member]) {
    let depth = members.first().map_or(0, |m| m.layers.len());
    for layer in 0..depth {
        densely(members.iter_mut().map(|m| &mut m.units[layer]).collect());
        densely(members.iter_mut().map(|m| &mut m.aligned[layer]).collect());
    }
}

/// Names without the task in front.
fn without_prefix(graph: &Graph, prefix: &str) -> Result<Graph> {
    let mut plain = graph.clone();
    plain.metadata.clear();
    plain.name = prefix.trim_end_matches('/').to_owned();
    // Inputs may be common to all tasks and so have no prefix: what is cut short must not become one of these.
    let whole: BTreeSet<String> = plain.values().iter().map(|v| v.name.clone()).collect();
    plain.rename(|name| match name.strip_prefix(prefix) {
        Some(short) if !whole.contains(short) => short.to_owned(),
        _ => name.to_owned(),
    });
    Ok(plain)
}
