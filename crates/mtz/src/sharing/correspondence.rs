//! Which layer of one network corresponds to which of another.
//!
//! Exporters write parallel branches in any order, so the order of layers in a file says little. What counts is the
//! graph: a layer's kind and window, which layers it reads and is read by, and which outputs it ends in. Layers get
//! colours by these (Weisfeiler and Leman 1968: a layer's next colour is made of its own and its neighbours'), until
//! nothing new is told apart; equal colours correspond. Where several layers have one colour, branches are alike in
//! everything: the order in the file decides, unless the weights say clearly that branches were crossed.

use super::joint::Member;
use super::layers::Layer;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::kernel::window::Window;
use std::collections::{BTreeMap, BTreeSet};

/// How many choices among alike layers are tried before the order in the file is taken.
const TRIES: usize = 1000;

/// Two alike layers are crossed only if their weights are so many times nearer that way.
const CLEARLY: f64 = 10.0;

/// What is compared at first; less and less, if networks differ.
#[derive(Clone, Copy)]
struct Compared {
    /// Numbers of units and inputs.
    widths: bool,
    /// Which outputs a layer ends in.
    outputs: bool,
}

/// For each layer of `first`, the layer of `other` that corresponds to it. Those before it always have their partners
/// before its own.
pub fn corresponding(first: &Member, other: &Member) -> Result<Vec<usize>> {
    let (a, b) = (Network::of(first), Network::of(other));
    if a.layers.len() == b.layers.len() {
        for (widths, outputs) in [(true, true), (false, true), (true, false), (false, false)] {
            if let Some(order) = Pairing::new(&a, &b, Compared { widths, outputs }).solve(&mut 0) {
                return Ok(order);
            }
        }
        // Networks whose layers are connected otherwise, one with residual sums and one without, say.
        if a.layers.iter().zip(b.layers).all(|(a, b)| kind(a) == kind(b)) {
            return Ok((0..a.layers.len()).collect());
        }
    }
    Err(difference(first, other))
}

/// The layers of a network and how they are connected.
struct Network<'m> {
    graph: &'m Graph,
    layers: &'m [Layer],
    /// For each layer, those it reads with no other layer between.
    reads: Vec<BTreeSet<usize>>,
    /// For each layer, those that read it.
    read_by: Vec<BTreeSet<usize>>,
    /// For each layer, whether it reads the network's input.
    at_input: Vec<bool>,
    /// For each layer, the outputs it ends in.
    outputs: Vec<BTreeSet<usize>>,
}

impl<'m> Network<'m> {
    fn of(member: &'m Member) -> Self {
        let (graph, layers) = (&member.graph, member.layers.as_slice());
        let by_node: BTreeMap<usize, usize> = layers.iter().enumerate().map(|(l, at)| (at.node, l)).collect();
        // For each value, the layers it comes from, and whether it comes from the input.
        let mut from: BTreeMap<ValueId, (BTreeSet<usize>, bool)> =
            graph.inputs().iter().map(|id| (*id, (BTreeSet::new(), true))).collect();
        let count = layers.len();
        let (mut reads, mut at_input) = (vec![BTreeSet::new(); count], vec![false; count]);
        for (i, node) in graph.nodes().iter().enumerate() {
            let mut sources = (BTreeSet::new(), false);
            for (own, input) in node.inputs.iter().flatten().filter_map(|id| from.get(id)) {
                sources.0.extend(own);
                sources.1 |= *input;
            }
            if let Some(&layer) = by_node.get(&i) {
                (reads[layer], at_input[layer]) = sources;
                sources = (BTreeSet::from([layer]), false);
            }
            from.insert(node.output, sources);
        }
        let (mut read_by, mut outputs) = (vec![BTreeSet::new(); count], vec![BTreeSet::new(); count]);
        for (layer, own) in reads.iter().enumerate() {
            own.iter().for_each(|&source: &usize| {
                read_by[source].insert(layer);
            });
        }
        for (k, id) in graph.outputs().iter().enumerate() {
            let (own, _) = from.get(id).cloned().unwrap_or_default();
            own.into_iter().for_each(|layer: usize| {
                outputs[layer].insert(k);
            });
        }
        Self { graph, layers, reads, read_by, at_input, outputs }
    }

    /// Lengths of a layer's incoming weights, in ascending order: the same whatever the order of units and inputs.
    fn lengths(&self, layer: usize) -> Vec<f64> {
        let at = &self.layers[layer];
        let rows = at.folded(self.graph);
        let length = |row: &[f32]| row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt();
        let mut lengths: Vec<f64> = rows.chunks(at.columns() + 1).map(length).collect();
        lengths.sort_by(f64::total_cmp);
        lengths
    }
}

/// What two layers must have in common whatever their widths.
fn kind(layer: &Layer) -> String {
    match &layer.conv {
        None => "Gemm".to_owned(),
        Some(conv) => {
            let each = |what: &str, usual: &str, of: &dyn Fn(&Window) -> String| {
                let all: Vec<String> = conv.windows.iter().map(of).collect();
                let unusual = all.iter().any(|own| own != usual);
                if unusual { format!("{what}{}", all.join("×")) } else { String::new() }
            };
            let size = each(" ", "", &|w| w.size.to_string());
            let stride = each(" stride ", "1", &|w| w.stride.to_string());
            let padding = each(" padding ", "0+0", &|w| format!("{}+{}", w.before, w.after));
            let dilation = each(" dilation ", "1", &|w| w.dilation.to_string());
            format!("Conv{size}{stride}{padding}{dilation}")
        }
    }
}

/// Colours of the layers of two networks.
struct Pairing<'n, 'm> {
    networks: [&'n Network<'m>; 2],
    colours: [Vec<usize>; 2],
}

impl<'n, 'm> Pairing<'n, 'm> {
    fn new(a: &'n Network<'m>, b: &'n Network<'m>, compared: Compared) -> Self {
        let mut numbers = BTreeMap::new();
        let colours = [a, b].map(|network| {
            let of = |(l, at): (usize, &Layer)| {
                let widths = compared.widths.then_some((at.units, at.columns()));
                let outputs = compared.outputs.then(|| network.outputs[l].clone());
                let next = numbers.len();
                *numbers.entry((kind(at), widths, outputs, network.at_input[l])).or_insert(next)
            };
            network.layers.iter().enumerate().map(of).collect()
        });
        let mut pairing = Self { networks: [a, b], colours };
        pairing.refine();
        pairing
    }

    /// New colours until they tell nothing new apart.
    fn refine(&mut self) {
        let count = |colours: &[Vec<usize>; 2]| colours.iter().flatten().collect::<BTreeSet<_>>().len();
        let mut before = 0;
        while count(&self.colours) > before {
            before = count(&self.colours);
            let mut numbers = BTreeMap::new();
            for (network, colours) in self.networks.iter().zip(&mut self.colours) {
                let of = |layers: &BTreeSet<usize>| {
                    let mut all: Vec<usize> = layers.iter().map(|l| colours[*l]).collect();
                    all.sort_unstable();
                    all
                };
                let keys = (0..colours.len()).map(|l| (colours[l], of(&network.reads[l]), of(&network.read_by[l])));
                let keys: Vec<_> = keys.collect();
                for (colour, key) in colours.iter_mut().zip(keys) {
                    let next = numbers.len();
                    *colour = *numbers.entry(key).or_insert(next);
                }
            }
        }
    }

    /// Layers of each network by colour.
    fn classes(&self) -> BTreeMap<usize, [Vec<usize>; 2]> {
        let mut classes: BTreeMap<usize, [Vec<usize>; 2]> = BTreeMap::new();
        for (which, colours) in self.colours.iter().enumerate() {
            colours.iter().enumerate().for_each(|(l, c)| classes.entry(*c).or_default()[which].push(l));
        }
        classes
    }

    /// The partners of the first network's layers, if there are any.
    fn solve(&self, tries: &mut usize) -> Option<Vec<usize>> {
        let classes = self.classes();
        if *tries >= TRIES || classes.values().any(|[a, b]| a.len() != b.len()) {
            return None;
        }
        *tries += 1;
        // The first of the layers that are alike.
        let Some([own, others]) = classes.values().filter(|[a, _]| a.len() > 1).min_by_key(|[a, _]| a.first()) else {
            let mut order = vec![0; self.colours[0].len()];
            for [a, b] in classes.values() {
                a.iter().zip(b).for_each(|(a, b)| order[*a] = *b);
            }
            return Some(order);
        };
        let &chosen = own.first()?;
        let fresh = 1 + self.colours.iter().flatten().max()?;
        self.preferred(chosen, others).into_iter().find_map(|other| {
            let mut next = Self { networks: self.networks, colours: self.colours.clone() };
            next.colours[0][chosen] = fresh;
            next.colours[1][other] = fresh;
            next.refine();
            next.solve(tries)
        })
    }

    /// Layers that may be the partner of `own`: in the order of the file, unless another one's weights are much nearer.
    fn preferred(&self, own: usize, others: &[usize]) -> Vec<usize> {
        let lengths = self.networks[0].lengths(own);
        let distance = |other: usize| {
            let others = self.networks[1].lengths(other);
            let squares: f64 = lengths.iter().zip(&others).map(|(a, b)| (a - b).powi(2)).sum();
            if lengths.len() == others.len() { squares } else { f64::INFINITY }
        };
        let mut order: Vec<(f64, usize)> = others.iter().map(|&other| (distance(other), other)).collect();
        let nearest = order.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(i, (d, _))| (i, *d));
        if let (Some((i, nearest)), Some((first, _))) = (nearest, order.first())
            && CLEARLY * nearest < *first
        {
            order[..=i].rotate_right(1);
        }
        order.into_iter().map(|(_, other)| other).collect()
    }
}

/// Where two networks do not match: how many layers have partners in order, and the first that has none.
fn difference(first: &Member, other: &Member) -> Error {
    let (a, b): (Vec<String>, Vec<String>) =
        (first.layers.iter().map(kind).collect(), other.layers.iter().map(kind).collect());
    let alike = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let common = in_common(&a, &b);
    let at = |member: &Member, kinds: &[String]| match (member.layers.get(alike), kinds.get(alike)) {
        (Some(layer), Some(kind)) => format!("{:?} ({kind}) in {}", layer.name, member.name),
        _ => format!("no more layer in {}", member.name),
    };
    let text = format!(
        "the networks do not match: {} has {} layers, {} has {}, {} of them correspond; layer {} is {}, {}",
        first.name,
        a.len(),
        other.name,
        b.len(),
        common,
        alike + 1,
        at(first, &a),
        at(other, &b)
    );
    Error::model(text).hint(
        "networks must have the same layers, connected alike, in any order; widths may differ. mtz inspect lists them",
    )
}

/// The length of the longest common subsequence.
fn in_common(a: &[String], b: &[String]) -> usize {
    // Row by row: a file may claim any number of layers.
    let mut before = vec![0usize; b.len() + 1];
    for a in a {
        let mut row = vec![0usize; b.len() + 1];
        for (j, b) in b.iter().enumerate() {
            row[j + 1] = if a == b { before[j] + 1 } else { row[j].max(before[j + 1]) };
        }
        before = row;
    }
    before.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_in_common_are_counted_in_order() {
        let count = |a: &str, b: &str| {
            let letters = |s: &str| s.chars().map(String::from).collect::<Vec<_>>();
            in_common(&letters(a), &letters(b))
        };
        assert_eq!([count("", ""), count("abc", ""), count("abc", "abc"), count("cab", "abc")], [0, 0, 3, 2]);
        assert_eq!([count("aabbc", "abcabc"), count("xaybz", "ab"), count("abc", "xyz")], [4, 2, 0]);
    }
}
