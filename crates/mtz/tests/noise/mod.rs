//! Images of noise, for tests that need numbers and nothing else.

use mtz::data::{Dataset, Feed, Normalisation, SampleSource};
use mtz::error::Result;
use mtz::graph::Graph;
use mtz::random;

struct Noise {
    shape: Vec<usize>,
    count: usize,
}

impl SampleSource for Noise {
    fn len(&self) -> usize {
        self.count
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn is_bytes(&self) -> bool {
        false
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<()> {
        out.iter_mut().zip(0..).for_each(|(x, i)| *x = random::normal(index as u64 + 1, i));
        Ok(())
    }
}

/// So many images without labels, as a network takes them.
pub fn noise(graph: &Graph, count: usize) -> Feed {
    let shape = graph[graph.inputs()[0]].shape.at(1)[1..].to_vec();
    let dataset = Dataset::new(Box::new(Noise { shape, count }), None);
    Feed::new(dataset, graph, Normalisation::default()).unwrap()
}
