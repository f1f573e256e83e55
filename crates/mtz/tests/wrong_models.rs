//! Joint models that once came out wrong without a word: each test is one way it happened.
//!
//! What is checked is always the same: the file computes what the model in memory computes, a task that is extracted
//! computes it too, and what must not be shared is not.
#![allow(clippy::unwrap_used, clippy::panic)]

mod noise;
mod small;

use mtz::graph::{Graph, ValueId};
use mtz::joint_file;
use mtz::merge::{self, Align, Matching, Recipe, Streams, merge_layer};
use mtz::onnx;
use mtz::op::{Add, Concat, Conv, Gemm, GlobalAveragePool, Mul, Softmax, Transpose, Window};
use mtz::random;
use mtz::sharing::Share;
use mtz::sharing::{Joint, Layer, Member};
use mtz::statistics::LayerStatistics;
use mtz::statistics::Moments;
use mtz::tensor::Tensor;
use small::{Builder, beside, check_file, difference, in_memory, mlp, options, outputs, single, zipped};

/// The biases of a task's layers.
fn biases(member: &Member) -> Vec<f32> {
    let ids = member.layers.iter().filter_map(|l| l.bias);
    ids.flat_map(|id| member.graph[id].constant.as_ref().unwrap().data().to_vec()).collect()
}

/// Shared units of every layer, by its name in the first network.
fn shared(joint: &Joint) -> Vec<(String, usize)> {
    let names = joint.members[0].layers.iter().enumerate();
    names.map(|(l, layer)| (layer.name.clone(), joint.shared_units(l))).collect()
}

/// A network with normalisations kept the offsets, and one without lost its biases: shared units were stored without
/// any.
#[test]
fn biases_survive_beside_a_network_with_normalisations() {
    for (first, second) in [(true, false), (false, true)] {
        let start = beside(&["a", "b"], &[mlp(1, first), mlp(2, second)]);
        for recipe in [Recipe::Best, Recipe::Paper] {
            let before = zipped(&start, &options(recipe)).joint;
            let what = format!("norms {first} {second}, {recipe:?}");
            check_file(&what, &before);
            assert!(shared(&before)[..2].iter().all(|(_, units)| *units >= 7), "{what}: {:?}", shared(&before));
            let slow = options(recipe).with(|o| {
                o.retraining.iterations = 2;
                o.retraining.rate = 1e-9;
                o.retraining.batch_size = 8;
            });
            let after = zipped(&start, &slow).joint;
            check_file(&format!("{what}, retrained"), &after);
            for (before, after) in before.members.iter().zip(&after.members) {
                let (before, after) = (biases(before), biases(after));
                assert!(before.iter().filter(|x| **x != 0.0).count() >= 4);
                let moved = before.iter().zip(&after).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(moved < 1e-3, "{what}: a bias moved by {moved}");
            }
        }
    }
}

#[test]
fn the_paper_s_recipe_takes_any_number_of_networks() {
    for count in [3, 4] {
        let graphs: Vec<Graph> = (1..=count).map(|seed| mlp(seed, seed == 2)).collect();
        let start = beside(&["a", "b", "c", "d"][..count as usize], &graphs);
        for matching in [Matching::Greedy, Matching::Optimal, Matching::Random] {
            for share in [Share::All, Share::Fraction(0.5)] {
                let options = options(Recipe::Paper).with(|o| {
                    o.sharing.matching = matching;
                    o.sharing.share = share;
                });
                check_file(&format!("{count} networks, {matching:?} {share:?}"), &zipped(&start, &options).joint);
            }
        }
    }
}

/// A x = b for a small dense matrix.
fn eliminate(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
        a.swap(i, pivot);
        b.swap(i, pivot);
        let (top, below) = a.split_at_mut(i + 1);
        for (k, row) in (i + 1..n).zip(below) {
            let factor = row[i] / top[i][i];
            row.iter_mut().zip(&top[i]).for_each(|(x, y)| *x -= factor * y);
            b[k] -= factor * b[i];
        }
    }
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|j| a[i][j] * b[j]).sum();
        b[i] = (b[i] - rest) / a[i][i];
    }
    b
}

fn times(a: &[Vec<f64>], x: &[f64]) -> Vec<f64> {
    a.iter().map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect()
}

fn plus(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

/// d and f of a fourth task for a unit that tasks 0 and 2 own: task 1's Gram matrix has no say. One long test, because
/// both are computed again from the same networks, samples and pool of units.
#[test]
fn only_owners_of_a_unit_are_asked() {
    const INPUTS: usize = 5;
    let row = |seed: u64| (0..=INPUTS as u64).map(|i| random::normal(seed, i)).collect::<Vec<f32>>();
    // Task 0 shares its first unit with task 1, its second with task 2; task 3 is almost like the second.
    let near = row(2).iter().zip(row(9)).map(|(a, b)| a + 0.05 * b).collect::<Vec<f32>>();
    let rows = [[row(1), row(2)], [row(1), row(3)], [row(4), row(2)], [row(5), near]];
    let network = |rows: &[Vec<f32>; 2]| {
        let (mut b, x) = Builder::new(1, &[INPUTS]);
        let weight = rows.iter().flat_map(|row| row[..INPUTS].to_vec()).collect();
        let (weight, bias) =
            (b.constant(&[2, INPUTS], weight), b.constant(&[2], vec![rows[0][INPUTS], rows[1][INPUTS]]));
        let hidden = b.node("fc1", Gemm { transpose_b: true, ..Gemm::PLAIN }, vec![Some(x), weight, bias]);
        let hidden = b.relu(hidden);
        let y = b.dense("fc2", hidden, 2);
        b.finish(&[y])
    };
    let graphs: Vec<Graph> = rows.iter().map(network).collect();
    let mut joint = beside(&["a", "b", "c", "d"], &graphs);
    let numbers = [[0, 1], [0, 3], [4, 1], [6, 7]];
    for (member, numbers) in joint.members.iter_mut().zip(numbers) {
        (member.units[0], member.aligned[0]) = (numbers.to_vec(), numbers.to_vec());
    }
    // Every task has seen something else.
    let samples = 60;
    let xs: Vec<Vec<f32>> = (0..4)
        .map(|t| {
            (0..samples * INPUTS)
                .map(|i| (1.0 + t as f32) * random::normal(50 + t, i as u64) + 0.3 * t as f32)
                .collect()
        })
        .collect();
    let seen = |x: &Vec<f32>| {
        let mut moments = Moments::new(INPUTS, 0);
        moments.add(x, &[]).unwrap();
        moments.mirror();
        LayerStatistics { moments, samples: None }
    };
    let seen: Vec<LayerStatistics> = xs.iter().map(seen).collect();
    let weights = [0.1, 0.2, 0.3, 0.4];
    let merge_options = merge::MergeOptions {
        share: Share::Count(1),
        matching: Matching::Optimal,
        recipe: Recipe::Paper,
        align: Align::Shared,
        streams: Streams::Last,
        ridge: 1e-10,
        rounds: 0,
        seed: 0,
    };
    let merged = merge_layer(&mut joint, 0, &seen, &weights, false, &merge_options).unwrap();

    let gram = |t: usize| -> Vec<Vec<f64>> {
        let at = |s: usize, i: usize| if i == INPUTS { 1.0 } else { f64::from(xs[t][s * INPUTS + i]) };
        let scale = weights[t] / samples as f64;
        let product = |i: usize, j: usize| scale * (0..samples).map(|s| at(s, i) * at(s, j)).sum::<f64>();
        (0..=INPUTS).map(|i| (0..=INPUTS).map(|j| product(i, j)).collect()).collect()
    };
    let grams: Vec<Vec<Vec<f64>>> = (0..4).map(gram).collect();
    let wide = |row: &[f32]| row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    // The pool before task 3: owners, and the row.
    let pool = [(vec![0, 1], row(1)), (vec![0, 2], row(2)), (vec![1], row(3)), (vec![2], row(4))];
    let own = &grams[3];
    let mut all = Vec::new();
    for (owners, before) in &pool {
        let theirs = owners.iter().skip(1).fold(grams[owners[0]].clone(), |sum, t| plus(&sum, &grams[*t]));
        for unit in &rows[3] {
            let apart: Vec<f64> = wide(before).iter().zip(wide(unit)).map(|(a, b)| a - b).collect();
            let solved = eliminate(plus(&theirs, own), times(own, &apart));
            all.push(0.5 * apart.iter().zip(times(&theirs, &solved)).map(|(a, b)| a * b).sum::<f64>());
        }
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert!(
        (merged.typical_distance - mean).abs() < 1e-4 * mean,
        "the mean of d is {}, not {mean}",
        merged.typical_distance
    );
    // The second unit of task 3 joins that of tasks 0 and 2.
    let joined = joint.members[3].units[0][1];
    assert_eq!([joint.members[0].units[0][1], joint.members[2].units[0][1]], [joined; 2]);
    let theirs = plus(&grams[0], &grams[2]);
    let right: Vec<f64> =
        times(&theirs, &wide(&row(2))).iter().zip(times(own, &wide(&rows[3][1]))).map(|(a, b)| a + b).collect();
    let expected = eliminate(plus(&theirs, own), right);
    for t in [0, 2, 3] {
        let now = joint.members[t].layers[0].read(&joint.members[t].graph);
        for (now, expected) in now[INPUTS + 1..].iter().zip(&expected) {
            assert!((f64::from(*now) - expected).abs() < 1e-4, "task {t}: {now}, expected {expected}");
        }
    }
    check_file("four tasks", &joint);
}

/// Whatever tasks and nodes are called, names in a file are unique.
#[test]
fn names_of_tasks_and_nodes_may_be_anything() {
    let twins = |seed: u64| {
        let (mut b, mut x) = Builder::new(seed, &[9]);
        for units in [8, 7] {
            x = b.dense("dense", x, units);
            x = b.relu(x);
        }
        let y = b.dense("dense", x, 4);
        b.finish(&[y])
    };
    let graphs: Vec<Graph> = (1..4).map(twins).collect();
    for names in [["shared", "a", "b"], ["a", "b", "a+b"], ["a+b", "shared", "a"], ["a", "a/dense", "a/dense.bias"]] {
        let start = beside(&names, &graphs);
        for share in [Share::All, Share::Fraction(0.5)] {
            let folder = tempfile::tempdir().unwrap();
            let options = options(Recipe::Best).with(|o| {
                o.sharing.share = share;
                o.resources.checkpoint = Some(folder.path().to_owned());
            });
            let joint = zipped(&start, &options).joint;
            let back = check_file(&format!("{names:?}"), &joint);
            assert_eq!(back.members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), names);
            // What was kept on the way can be read, and is the same model.
            let again = zipped(&start, &options).joint;
            assert!(difference(&in_memory(&joint), &in_memory(&again)) < 1e-6, "{names:?}: checkpoint");
        }
    }
}

/// What stands behind something that says nothing about its units is its task's own, even if it has the same position
/// in another network.
#[test]
fn positions_that_nobody_knows_are_private() {
    let grouped = |seed: u64| {
        let (mut b, mut x) = Builder::new(seed, &[2, 5, 5]);
        for (name, groups) in [("conv1", 1), ("grouped", 2), ("conv2", 1)] {
            x = b.conv(name, x, 6, 3, groups);
            x = b.relu(x);
        }
        x = b.node("pool", GlobalAveragePool, vec![Some(x)]);
        x = b.reshape(x, &[6]);
        let y = b.dense("head", x, 3);
        b.finish(&[y])
    };
    let halved = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[9]);
        let x = b.dense("fc1", x, 6);
        let x = b.relu(x);
        // A product with a factor of its own is no layer, and nobody says what its answers are.
        let weight = b.weight(&[6, 6], 0.5, 0.0);
        let x = b.node("half", Gemm { alpha: 0.5, transpose_b: true, ..Gemm::PLAIN }, vec![Some(x), weight]);
        let x = b.relu(x);
        let x = b.dense("fc2", x, 5);
        let x = b.relu(x);
        let y = b.dense("head", x, 3);
        b.finish(&[y])
    };
    // All weights of the first layer are shared, of the second the biases alone, of the head nothing.
    for (graphs, expected) in [([grouped(1), grouped(2)], 6 * (2 * 9 + 1) + 6), ([halved(1), halved(2)], 6 * 10 + 5)] {
        for recipe in [Recipe::Best, Recipe::Paper] {
            let joint = zipped(&beside(&["a", "b"], &graphs), &options(recipe)).joint;
            check_file("private positions", &joint);
            assert_eq!(joint.parameters().1, expected, "{recipe:?}");
        }
        assert_eq!(Layer::private(&graphs[0]).len(), 1);
    }
}

/// These layers share nothing, and all others do.
fn check_heads(what: &str, graphs: [Graph; 2], heads: &[&str]) -> Joint {
    let start = beside(&["a", "b"], &graphs);
    let mut last = None;
    for recipe in [Recipe::Best, Recipe::Paper] {
        let joint = zipped(&start, &options(recipe)).joint;
        check_file(what, &joint);
        for (name, units) in shared(&joint) {
            assert_eq!(units == 0, heads.contains(&name.as_str()), "{what}, {recipe:?}: {name} shares {units} units");
        }
        last = Some(joint);
    }
    last.unwrap()
}

#[test]
fn every_layer_in_front_of_an_output_is_a_head() {
    let two = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[9]);
        let x = b.dense("fc1", x, 8);
        let x = b.relu(x);
        let outputs = [("age", 1), ("gender", 2)].map(|(name, units)| b.dense(name, x, units));
        b.finish(&outputs)
    };
    check_heads("two outputs", [two(1), two(2)], &["age", "gender"]);
    // Answers of small layers are multiplied and added to one output, as in SSR-Net.
    let stages = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[9]);
        let x = b.dense("trunk1", x, 10);
        let x = b.relu(x);
        let x = b.dense("trunk2", x, 8);
        let x = b.relu(x);
        let parts: Vec<ValueId> = (0..3)
            .map(|k| {
                let [p, delta, scale] = ["p", "delta", "scale"].map(|name| b.dense(&format!("{name}{k}"), x, 3));
                let p = b.node("softmax", Softmax { axis: 1 }, vec![Some(p)]);
                let product = b.node("times", Mul, vec![Some(p), Some(delta)]);
                b.node("times", Mul, vec![Some(product), Some(scale)])
            })
            .collect();
        let sum = b.node("plus", Add, vec![Some(parts[0]), Some(parts[1])]);
        let sum = b.node("plus", Add, vec![Some(sum), Some(parts[2])]);
        b.finish(&[sum])
    };
    let heads = ["p0", "delta0", "scale0", "p1", "delta1", "scale1", "p2", "delta2", "scale2"];
    check_heads("a regressor in stages", [stages(1), stages(2)], &heads);
}

/// A detector's head: class logits, and boxes whose sides are means of a distribution, which a constant convolution
/// computes.
fn detector(seed: u64) -> Graph {
    let (mut b, x) = Builder::new(seed, &[2, 4, 4]);
    let x = b.conv("conv1", x, 6, 3, 1);
    let x = b.relu(x);
    let x = b.conv("conv2", x, 6, 3, 1);
    let x = b.relu(x);
    let boxes = b.conv("boxes", x, 2 * 4, 1, 1);
    let boxes = b.reshape(boxes, &[2, 4, 16]);
    let bins = b.node("bins", Transpose { permutation: vec![0, 2, 1, 3] }, vec![Some(boxes)]);
    let bins = b.node("softmax", Softmax { axis: 1 }, vec![Some(bins)]);
    let steps = b.constant(&[1, 4, 1, 1], vec![0.0, 1.0, 2.0, 3.0]);
    let windows = vec![Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 }; 2];
    let sides = b.node("dfl", Conv { windows, groups: 1 }, vec![Some(bins), steps]);
    let sides = b.reshape(sides, &[2, 16]);
    let classes = b.conv("classes", x, 3, 1, 1);
    let classes = b.reshape(classes, &[3, 16]);
    let y = b.node("join", Concat { axis: 1 }, vec![Some(sides), Some(classes)]);
    b.finish(&[y])
}

#[test]
fn detectors_keep_their_heads_and_constant_maps() {
    let joint = check_heads("class logits and boxes", [detector(1), detector(2)], &["boxes", "classes"]);
    for member in &joint.members {
        let dfl = member.graph.nodes().iter().find(|n| n.name.ends_with("dfl")).unwrap();
        let steps = member.graph[dfl.inputs[1].unwrap()].constant.as_ref().unwrap();
        assert_eq!(steps.data(), [0.0, 1.0, 2.0, 3.0], "a constant map was fitted");
    }
    let private = Layer::private(&detector(1));
    assert!(private.len() == 1 && private[0].0 == "dfl" && private[0].2.contains("constant map"), "{private:?}");
    let scales = |seed: u64| {
        let (mut b, mut x) = Builder::new(seed, &[2, 4, 4]);
        let mut all = Vec::new();
        for k in 1..3 {
            x = b.conv(&format!("conv{k}"), x, 6, 3, 1);
            x = b.relu(x);
            let (scores, boxes) = (b.conv(&format!("scores{k}"), x, 3, 1, 1), b.conv(&format!("boxes{k}"), x, 4, 1, 1));
            let scores = b.reshape(scores, &[48]);
            let boxes = b.reshape(boxes, &[64]);
            all.extend([Some(scores), Some(boxes)]);
        }
        let y = b.node("join", Concat { axis: 1 }, all);
        b.finish(&[y])
    };
    check_heads("two scales", [scales(1), scales(2)], &["scores1", "boxes1", "scores2", "boxes2"]);
}

/// Where the output layer is one that cannot be shared, what comes before it is no head; that the output layer stays
/// private is said.
#[test]
fn an_output_layer_that_cannot_be_shared_is_private() {
    let network = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[2, 5, 5]);
        let x = b.conv("conv1", x, 6, 3, 1);
        let x = b.relu(x);
        let x = b.conv("conv2", x, 6, 3, 1);
        let x = b.relu(x);
        let y = b.conv("grouped", x, 4, 1, 2);
        b.finish(&[y])
    };
    let joint = check_heads("a grouped head", [network(1), network(2)], &[]);
    let private = Layer::private(&joint.members[0].graph);
    assert!(private.len() == 1 && private[0].0 == "grouped" && private[0].2.contains("grouped"), "{private:?}");
}

/// An output that another layer reads as well, and one without any layer.
#[test]
fn outputs_may_be_anywhere() {
    let inner = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[9]);
        let hidden = b.dense("fc1", x, 8);
        let hidden = b.relu(hidden);
        let feature = b.dense("feature", hidden, 6);
        let feature = b.relu(feature);
        let hidden = b.dense("fc2", feature, 6);
        let hidden = b.relu(hidden);
        let y = b.dense("head", hidden, 3);
        let copy = b.relu(x);
        b.finish(&[y, feature, copy])
    };
    check_heads("inner outputs", [inner(1), inner(2)], &["feature", "head"]);
}

#[test]
fn networks_of_output_layers_alone_share_nothing() {
    let network = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[9]);
        let y = b.dense("head", x, 3);
        b.finish(&[y])
    };
    let graphs = [network(1), network(2)];
    let start = beside(&["a", "b"], &graphs);
    // With retraining too: there is no layer to retrain for.
    let joint = zipped(
        &start,
        &options(Recipe::Best).with(|o| {
            o.retraining.iterations = 2;
            o.retraining.batch_size = 8;
        }),
    )
    .joint;
    check_file("heads alone", &joint);
    assert_eq!(joint.parameters().1, 0);
    let expected: Vec<Tensor> = graphs.iter().flat_map(outputs).collect();
    assert_eq!(difference(&expected, &in_memory(&joint)), 0.0);
}

/// Weights that two layers use, biases too, belong to each of them afterwards.
#[test]
fn layers_may_use_the_same_weights() {
    let tied = |seed: u64| {
        let (mut b, x) = Builder::new(seed, &[6]);
        let (weight, bias) = (b.weight(&[6, 6], 0.5, 0.0), b.weight(&[6], 0.5, 0.0));
        let gemm = || Gemm { transpose_b: true, ..Gemm::PLAIN };
        let x = b.node("", gemm(), vec![Some(x), weight, bias]);
        let x = b.relu(x);
        let x = b.node("", gemm(), vec![Some(x), weight, bias]);
        let x = b.relu(x);
        let other = b.weight(&[6, 6], 0.5, 0.0);
        let x = b.node("", gemm(), vec![Some(x), other, bias]);
        let x = b.relu(x);
        let y = b.node("", gemm(), vec![Some(x), weight, bias]);
        b.finish(&[y])
    };
    let start = beside(&["a", "b"], &[tied(1), tied(2)]);
    for recipe in [Recipe::Best, Recipe::Paper] {
        for share in [Share::All, Share::Fraction(0.5), Share::Count(0)] {
            let joint = zipped(&start, &options(recipe).with(|o| o.sharing.share = share)).joint;
            check_file("tied weights", &joint);
            let slow = options(recipe).with(|o| {
                o.sharing.share = share;
                o.retraining.iterations = 1;
                o.retraining.rate = 1e-9;
                o.retraining.batch_size = 8;
            });
            check_file("tied weights, retrained", &zipped(&start, &slow).joint);
        }
    }
}

/// Two branches and more, in the order that `order` says.
fn branches(seed: u64, sizes: &[usize], order: &[usize]) -> Graph {
    let (mut b, x) = Builder::new(seed, &[2, 5, 5]);
    let x = b.conv("stem", x, 6, 3, 1);
    let x = b.relu(x);
    let mut ends = vec![None; sizes.len()];
    for &k in order {
        // Weights depend on the branch, not on where it is written.
        b.seed = 1000 * seed + 100 * (k as u64 + 1);
        let inner = b.conv(&format!("inner{k}"), x, 5, sizes[k], 1);
        let inner = b.relu(inner);
        let end = b.conv(&format!("end{k}"), inner, 4, 1, 1);
        ends[k] = Some(b.relu(end));
    }
    b.seed = 1000 * seed + 900;
    let joined = b.node("join", Concat { axis: 1 }, ends);
    let pooled = b.node("pool", GlobalAveragePool, vec![Some(joined)]);
    let flat = b.reshape(pooled, &[4 * sizes.len()]);
    let y = b.dense("head", flat, 3);
    b.finish(&[y])
}

#[test]
fn layers_are_matched_by_the_graph_not_by_the_order_in_the_file() {
    // Branches of different kinds, and branches that only their weights tell apart.
    for sizes in [[1, 3, 5], [3, 1, 3], [3, 3, 3]] {
        let (a, b) = (branches(1, &sizes, &[0, 1, 2]), branches(1, &sizes, &[2, 0, 1]));
        assert!(difference(&outputs(&a), &outputs(&b)) < 1e-6);
        let start = beside(&["a", "b"], &[a.clone(), b]);
        for recipe in [Recipe::Best, Recipe::Paper] {
            let joint = zipped(&start, &options(recipe).with(|o| o.fitting.ridge = 1e-6)).joint;
            check_file("branches", &joint);
            for member in &joint.members {
                let moved = difference(&outputs(&a), &outputs(&member.graph));
                assert!(moved < 1e-3, "{sizes:?} {recipe:?}: outputs of {} moved by {moved}", member.name);
            }
            assert!(shared(&joint).iter().all(|(name, units)| (name == "head") == (*units == 0)));
        }
    }
    let error = Joint::from_networks(vec![
        single("a", &branches(1, &[1, 3], &[0, 1])),
        single("b", &branches(1, &[1, 3, 3], &[0, 1, 2])),
    ]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("a has 6 layers, b has 8, 6 of them correspond"), "{text}");
}

/// Three layers of eight units and a head; the inner layers are added to what they read, or are not.
fn three_layers(seed: u64, residual: bool) -> Graph {
    let (mut b, x) = Builder::new(seed, &[9]);
    let x = b.dense("fc1", x, 8);
    let mut x = b.relu(x);
    for name in ["fc2", "fc3"] {
        let inner = b.dense(name, x, 8);
        let sum = if residual { b.node("sum", Add, vec![Some(inner), Some(x)]) } else { inner };
        x = b.relu(sum);
    }
    let y = b.dense("head", x, 3);
    b.finish(&[y])
}

/// A residual sum joins the units of two layers in one network and not in the other: their numbers must not be taken
/// for each other.
#[test]
fn a_residual_network_beside_one_without_sums() {
    let all = [[true, false, true], [false, true, true], [true, true, false]];
    for kinds in all {
        let graphs: Vec<Graph> = (1..).zip(kinds).map(|(seed, residual)| three_layers(seed, residual)).collect();
        for count in [2, 3] {
            let start = beside(&["a", "b", "c"][..count], &graphs[..count]);
            for streams in [Streams::Last, Streams::First, Streams::One] {
                for (recipe, align) in
                    [(Recipe::Best, Align::All), (Recipe::Best, Align::Shared), (Recipe::Paper, Align::All)]
                {
                    let share = Share::Fraction(0.5);
                    let options = options(recipe).with(|o| {
                        o.sharing.streams = streams;
                        o.sharing.share = share;
                        o.sharing.align = Some(align);
                    });
                    let what = format!("{kinds:?} {count} {streams:?} {recipe:?} {align:?}");
                    let joint = zipped(&start, &options).joint;
                    check_file(&what, &joint);
                    check_alignment(&what, &joint, align);
                }
            }
        }
    }
}

/// Where tasks have no stream in common, units that are one stand for each other in later layers; with
/// [`Align::Shared`] no others do.
fn check_alignment(what: &str, joint: &Joint, align: Align) {
    for layer in (0..joint.depth()).filter(|l| joint.stream(*l).is_none()) {
        for (i, a) in joint.members.iter().enumerate() {
            for b in &joint.members[i + 1..] {
                for (unit, known) in a.units[layer].iter().zip(&a.aligned[layer]) {
                    for (other, other_known) in b.units[layer].iter().zip(&b.aligned[layer]) {
                        assert!(unit != other || known == other_known, "{what}: layer {layer}");
                        assert!(known != other_known || unit == other || align == Align::All, "{what}: layer {layer}");
                    }
                }
            }
        }
    }
}

/// A joint model whose streams have one alignment takes in a network without, in the paper's way: what was shared must
/// stay equal.
#[test]
fn what_a_joint_model_shares_stays_equal_when_a_task_joins() {
    let start = beside(&["a", "b"], &[three_layers(1, true), three_layers(2, true)]);
    for share in [Share::All, Share::Fraction(0.5)] {
        for streams in [Streams::First, Streams::Last, Streams::One] {
            let first = zipped(
                &start,
                &options(Recipe::Best).with(|o| {
                    o.sharing.share = share;
                    o.sharing.streams = streams;
                    o.sharing.align = Some(Align::All);
                }),
            )
            .joint;
            for residual in [true, false] {
                let parts = || vec![first.clone(), single("c", &three_layers(3, residual))];
                for (recipe, now) in
                    [(Recipe::Paper, Streams::Last), (Recipe::Best, Streams::Last), (Recipe::Best, Streams::First)]
                {
                    let start = Joint::from_networks(parts()).unwrap();
                    let what = format!("{share:?} {streams:?}, then {recipe:?} {now:?} residual {residual}");
                    let options = options(recipe).with(|o| {
                        o.sharing.share = share;
                        o.sharing.streams = now;
                        o.sharing.align = Some(Align::All);
                    });
                    check_file(&what, &zipped(&start, &options).joint);
                }
            }
        }
    }
}

/// Numbers of units in a file may be as large as they like.
#[test]
fn numbers_in_the_metadata_are_hostile() {
    let start = beside(&["a", "b"], &[mlp(1, false), mlp(2, false)]);
    let joint = zipped(&start, &options(Recipe::Best)).joint;
    let mut graph = joint_file::to_graph(&joint, false).unwrap();
    let text = &mut graph.metadata.iter_mut().find(|(key, _)| key == "mtz.joint").unwrap().1;
    // Shared units of all layers keep equal numbers, only far beyond what can be added to.
    let mut json: serde_json::Value = serde_json::from_str(text).unwrap();
    for task in json["tasks"].as_array_mut().unwrap() {
        for layer in task["layers"].as_array_mut().unwrap() {
            for key in ["units", "aligned"] {
                for number in layer[key].as_array_mut().unwrap() {
                    *number = serde_json::json!(u64::MAX - number.as_u64().unwrap());
                }
            }
        }
    }
    *text = json.to_string();
    let back = joint_file::from_graph(&onnx::parse(&onnx::to_bytes(&graph).unwrap()).unwrap()).unwrap().unwrap();
    assert_eq!(back.parameters(), joint.parameters());
    let start = Joint::from_networks(vec![back, single("c", &mlp(3, false))]).unwrap();
    let joined = zipped(&start, &options(Recipe::Best)).joint;
    check_file("large numbers", &joined);
    assert_eq!(joined.parameters().1, joint.parameters().1);
}

/// A file in which somebody else has changed the weights of one task does not share what it says.
#[test]
fn a_joint_model_that_was_trained_elsewhere_is_refused() {
    let start = beside(&["a", "b"], &[mlp(1, false), mlp(2, false)]);
    let joint = zipped(&start, &options(Recipe::Best)).joint;
    let parts = |joint: Joint| vec![joint, single("c", &mlp(3, false))];
    assert!(Joint::from_networks(parts(joint.clone())).is_ok());
    for bias in [false, true] {
        let mut changed = joint.clone();
        let member = &mut changed.members[1];
        let layer = &member.layers[1];
        let id = if bias { layer.bias.unwrap() } else { layer.weight };
        let moved = |of, tensor: &Tensor| {
            let by = if of == id { 1e-3 } else { 0.0 };
            Tensor::new(tensor.shape().to_vec(), tensor.data().iter().map(|x| x + by).collect())
        };
        member.graph = member.graph.with_constants(moved).unwrap();
        let error = Joint::from_networks(parts(changed)).unwrap_err().to_string();
        assert!(error.contains("b has other numbers") && error.contains("fc2"), "{error}");
    }
}
