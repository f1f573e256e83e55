//! Fingerprints of networks, settings and samples (BLAKE3): what was kept for one run is not taken for another's.

use crate::data::Labels;
use crate::graph::Graph;

/// A fingerprint that grows.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// Takes in a number.
    pub fn number(&mut self, word: u64) {
        self.0.update(&word.to_le_bytes());
    }

    /// Takes in a text; where it ends is part of the fingerprint.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
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
            for numbers in tensor.data().chunks(1024) {
                let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                self.0.update(&bytes);
            }
        }
    }

    /// As text: 128 bits in hexadecimal.
    pub fn finish(&self) -> String {
        self.0.finalize().to_hex().chars().take(32).collect()
    }
}
