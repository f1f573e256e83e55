//! Marks of networks, settings and samples: what was kept for one run is not taken for another's.

use crate::data::Labels;
use crate::graph::Graph;

/// A fingerprint that grows.
#[derive(Clone, Copy, Debug)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Takes in a number (FNV-1a, word by word).
    pub fn number(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    /// Takes in a text.
    pub fn text(&mut self, text: &str) {
        text.bytes().for_each(|b| self.number(u64::from(b)));
        self.number(text.len() as u64);
    }

    /// Takes in the right answers, or that there are none.
    pub fn labels(&mut self, labels: Option<&Labels>) {
        match labels {
            Some(Labels::Classes(all)) => all.iter().for_each(|class| self.number(u64::from(*class))),
            Some(Labels::Attributes { values, .. }) => values.iter().for_each(|v| self.number(u64::from(*v))),
            None => self.number(u64::MAX),
        }
    }

    /// Takes in a network with its weights.
    pub fn network(&mut self, graph: &Graph) {
        let borders = graph.inputs().iter().chain(graph.outputs()).map(|id| graph[*id].element);
        self.text(&format!("{} {:?}", graph.element, borders.collect::<Vec<_>>()));
        graph.nodes().iter().for_each(|n| self.text(&format!("{} {:?} {:?}", n.name, n.op, n.inputs)));
        for tensor in graph.values().iter().filter_map(|v| v.constant.as_ref()) {
            tensor.data().iter().for_each(|x| self.number(u64::from(x.to_bits())));
        }
    }

    /// As text.
    pub fn finish(self) -> String {
        format!("{:016x}", self.0)
    }
}
