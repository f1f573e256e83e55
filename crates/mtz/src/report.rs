//! A zip to look at: one HTML page made from the JSON of a run, with nothing to load from elsewhere.
//!
//! Layer and task names are arbitrary strings from files; all text goes through [`escape`]. Every chart has its numbers in a table below it. There is no
//! script: the page opens anywhere, and hovering shows what `title` elements say.

use crate::chart::{Chart, Point, Series, escape};
use crate::error::{Error, Result};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--faint:#666;--back:#fff;--line:#8884;--own:#c4c4c4;--two:#009e73;--more:#0072b2;--warn:#b04a00}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--faint:#999;--back:#181818;--own:#777;--warn:#f0a060}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:60rem;margin:0 auto;padding:1rem}\
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin-top:2rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.4rem 0}th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line)}td{white-space:nowrap}\
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}.wide>svg{min-width:32rem}td svg{vertical-align:middle;max-width:none}\
.units{display:grid;grid-template-columns:minmax(4rem,max-content) 1fr;gap:.15rem .6rem;align-items:center}\
.units>div:nth-child(odd){overflow:hidden;text-overflow:ellipsis;white-space:nowrap;max-width:14rem;font-size:.85rem}\
.bar{display:flex;height:1.3rem;overflow:hidden;border-radius:3px}\
.bar span{overflow:hidden;white-space:nowrap;font-size:.75rem;line-height:1.3rem;padding:0 .3rem;border-right:1px solid var(--back);background:var(--own);color:#000;min-width:0}\
.o0{background:#a6cee3!important}.o1{background:#fdbf6f!important}.o2{background:#cab2d6!important}.o3{background:#fb9a99!important}.o4{background:#d9c39a!important}\
.bar .two{background:var(--two);color:#fff}.bar .more{background:var(--more);color:#fff}.faint{color:var(--faint)}.warn{color:var(--warn)}\
.key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .3rem 0 .8rem}details{margin:.4rem 0}pre{white-space:pre-wrap;overflow-wrap:anywhere}";

/// Renders what `mtz zip --json` printed.
pub fn html(run: &Value) -> Result<String> {
    let wrong = || Error::data("this is not the JSON of a zip").hint("mtz zip --json > run.json makes one");
    let tasks = run["tasks"].as_object().ok_or_else(wrong)?;
    let layers = run["layers"].as_array().ok_or_else(wrong)?;
    let names: Vec<&str> = tasks.keys().map(String::as_str).collect();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>mtz: {title}</title><style>{STYLE}</style></head><body>\n<h1>{title} in one</h1>\n",
        title = escape(&names.join(", ")),
    );
    headline(&mut page, run, &names);
    warnings(&mut page, run);
    units(&mut page, &names, layers);
    layer_sections(&mut page, &names, run, layers);
    distance_section(&mut page, layers);
    retraining_section(&mut page, &names, layers);
    budget_section(&mut page, &names, &run["budget"]);
    this_run(&mut page, run);
    Ok(page)
}

fn headline(page: &mut String, run: &Value, names: &[&str]) {
    let of = |name: &str, key: &str| run["tasks"][name][key].as_f64();
    if names.iter().any(|name| of(name, "error_before").is_some()) {
        let mut rows = vec![texts(["error, %", "before", "after the merge", "at the end", "change"])];
        for name in names {
            let change = of(name, "error_after").zip(of(name, "error_before")).map(|(a, b)| a - b);
            let errors = ["error_before", "error_zipped", "error_after"].map(|key| fixed(of(name, key), 2));
            let change = change.map_or("-".into(), |c| format!("{c:+.2}"));
            rows.push([(*name).to_owned()].into_iter().chain(errors).chain([change]).collect());
        }
        table(page, &rows);
    }
    let mut rows = vec![texts(["agreement, %", "after the merge", "at the end", "answers", "samples"])];
    for name in names {
        let task = &run["tasks"][*name];
        let guess = if task["kind_is_known"].as_bool() == Some(false) { " (a guess)" } else { "" };
        rows.push(vec![
            (*name).to_owned(),
            fixed(of(name, "agreement_zipped"), 2),
            fixed(of(name, "agreement_after"), 2),
            task["kind"].as_str().map_or("-".into(), |kind| format!("{kind}{guess}")),
            format!("{} ({})", task["samples"].as_u64().unwrap_or(0), task["part"].as_str().unwrap_or("test")),
        ]);
    }
    table(page, &rows);
    page.push_str(
        "<p class=\"faint\">Agreement is with the original networks: of classes and attributes, the part of the answers that are theirs; of values, 100 less the rms \
         difference in percent of the deviation of their answers.</p>\n",
    );
    let count = |key: &str| run["parameters"][key].as_u64().unwrap_or(0);
    let (before, after) = (count("before"), count("after"));
    let part = |now: u64, before: u64| format!("{:.1} %", 100.0 * now as f64 / before.max(1) as f64);
    let megabytes = |key: &str| fixed(run["file_bytes"][key].as_f64().map(|bytes| 1e-6 * bytes), 2);
    let bytes = |key: &str| run["file_bytes"][key].as_u64().unwrap_or(0);
    let mut rows = vec![
        texts(["size", "separate networks", "joint model", ""]),
        vec!["parameters".into(), grouped(before), grouped(after), part(after, before)],
        vec!["of them shared".into(), String::new(), grouped(count("shared")), String::new()],
        vec!["files, MB".into(), megabytes("before"), megabytes("after"), part(bytes("after"), bytes("before"))],
    ];
    let (sparse_before, sparse) = (count("nonzero_before"), count("nonzero_after"));
    if sparse > 0 && sparse < after {
        rows.push(vec!["not zero".into(), grouped(sparse_before), grouped(sparse), part(sparse, sparse_before)]);
    }
    table(page, &rows);
}

/// What deserves a second look.
fn warnings(page: &mut String, run: &Value) {
    let given = run["warnings"].as_array().into_iter().flatten();
    let mut told: Vec<String> = given.map(|line| text(line).to_owned()).collect();
    for part in run["private"].as_array().into_iter().flatten() {
        let weights = grouped(part["parameters"].as_u64().unwrap_or(0));
        told.push(format!("{} stays private ({weights} parameters): {}", text(&part["name"]), text(&part["why"])));
    }
    for missed in run["budget"]["missed"].as_array().into_iter().flatten() {
        told.push(format!("The budget is not met: {}.", text(missed)));
    }
    if told.is_empty() {
        return;
    }
    const SHOWN: usize = 6;
    page.push_str("<ul class=\"warn\">\n");
    told.iter().take(SHOWN).for_each(|line| {
        let _ = writeln!(page, "<li>{}</li>", escape(line));
    });
    page.push_str("</ul>\n");
    if told.len() > SHOWN {
        let _ = writeln!(page, "<details><summary>{} more</summary><ul class=\"warn\">", told.len() - SHOWN);
        told.iter().skip(SHOWN).for_each(|line| {
            let _ = writeln!(page, "<li>{}</li>", escape(line));
        });
        page.push_str("</ul></details>\n");
    }
}

/// Who owns which units, as parts of a bar for each layer.
fn units(page: &mut String, names: &[&str], layers: &[Value]) {
    /// Colours for what only one task has ([`STYLE`]).
    const OWN: usize = 5;
    page.push_str("<h2>Who owns which units</h2>\n<div class=\"units\">\n");
    for layer in layers {
        let name = escape(text(&layer["name"]));
        let _ = writeln!(page, "<div title=\"{name}\">{name}</div><div class=\"bar\">");
        let mut parts: Vec<&Value> = layer["owners"].as_array().into_iter().flatten().collect();
        if names.len() > 2 {
            // Of many sets, what most tasks share comes first.
            parts.sort_by_key(|part| std::cmp::Reverse(part["tasks"].as_array().map_or(0, Vec::len)));
        }
        for part in parts {
            let tasks: Vec<&str> = part["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let (count, label) = (part["units"].as_u64().unwrap_or(0), escape(&tasks.join(" + ")));
            let class = match tasks.as_slice() {
                [] => String::new(),
                [one] => format!("o{}", names.iter().position(|n| n == one).unwrap_or(0) % OWN),
                [_, _] => "two".to_owned(),
                _ => "more".to_owned(),
            };
            let _ = write!(
                page,
                "<span class=\"{class}\" style=\"flex:{count} 1 0\" title=\"{label}: {count} units\">{count} {label}</span>"
            );
        }
        page.push_str("</div>\n");
    }
    page.push_str("</div>\n<p class=\"faint\">");
    for (i, name) in names.iter().enumerate() {
        let _ = write!(page, "<span class=\"key o{}\"></span>{} alone", i % OWN, escape(name));
    }
    page.push_str("<span class=\"key\" style=\"background:var(--two)\"></span>shared by two");
    if names.len() > 2 {
        page.push_str("<span class=\"key\" style=\"background:var(--more)\"></span>by more");
    }
    page.push_str("</p>\n");
    let mut rows = vec![texts(["layer", "units", "owners"])];
    for layer in layers {
        for part in layer["owners"].as_array().into_iter().flatten() {
            let tasks: Vec<&str> = part["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let count = part["units"].as_u64().unwrap_or(0).to_string();
            rows.push(vec![text(&layer["name"]).to_owned(), count, tasks.join(" + ")]);
        }
    }
    page.push_str("<details><summary>as a table</summary>\n");
    table(page, &rows);
    page.push_str("</details>\n");
}

/// What is measured while layers are merged.
struct Measure {
    title: &'static str,
    what: &'static str,
    /// Where it stands in the JSON of a task or a layer.
    before: &'static str,
    zipped: &'static str,
    after: &'static str,
}

const ERROR: Measure =
    Measure { title: "Error", what: "error", before: "error_before", zipped: "error_zipped", after: "error_after" };

const AGREEMENT: Measure =
    Measure { title: "Agreement", what: "agreement", before: "", zipped: "agreement_zipped", after: "agreement_after" };

/// Errors and agreement while layers are merged, with retraining beside where there was any.
fn layer_sections(page: &mut String, names: &[&str], run: &Value, layers: &[Value]) {
    measure_section(page, names, run, layers, &ERROR);
    measure_section(page, names, run, layers, &AGREEMENT);
}

fn measure_section(page: &mut String, names: &[&str], run: &Value, layers: &[Value], measure: &Measure) {
    let points = |errors: &mut dyn Iterator<Item = Option<f64>>| -> Vec<Point> {
        let known = errors.enumerate().filter_map(|(x, y)| y.map(|y| (x, y)));
        known.map(|(x, y)| Point { x: x as f64, y, spread: None }).collect()
    };
    let is_retrained = |layer: &Value| layer["iterations"].as_u64().unwrap_or(0) > 0;
    let retrained = layers.iter().any(is_retrained);
    let mut series = Vec::new();
    for name in names {
        let before = std::iter::once(run["tasks"][*name][measure.before].as_f64());
        let merged = points(&mut before.chain(layers.iter().map(|l| l[measure.zipped][*name].as_f64())));
        series.push(Series { name: format!("{name} merged"), points: merged, dashed: retrained });
        if retrained {
            let after = |l: &Value| l[measure.after][*name].as_f64().filter(|_| is_retrained(l));
            let after = points(&mut std::iter::once(None).chain(layers.iter().map(after)));
            series.push(Series { name: format!("{name} retrained"), points: after, dashed: false });
        }
    }
    if series.iter().all(|s| s.points.is_empty()) {
        return;
    }
    let mut rows = vec![texts(["layer", "units", "shared", "iterations", "seconds", "samples"])];
    if let Some(head) = rows.first_mut() {
        head.extend(names.iter().flat_map(|n| [format!("{n} merged %"), format!("{n} after %")]));
    }
    for layer in layers {
        let units: Vec<String> = names.iter().map(|n| layer["units"][*n].as_u64().unwrap_or(0).to_string()).collect();
        let count = |key: &str| layer[key].as_u64().unwrap_or(0).to_string();
        let mut row = vec![text(&layer["name"]).to_owned(), units.join("+"), count("shared"), count("iterations")];
        row.extend([fixed(layer["seconds"].as_f64(), 1), count("error_samples")]);
        let of = |key: &str, name: &str| fixed(layer[key][name].as_f64(), 2);
        row.extend(names.iter().flat_map(|n| [of(measure.zipped, n), of(measure.after, n)]));
        rows.push(row);
    }
    let chart = Chart {
        title: format!("{} of each task", measure.title),
        places: std::iter::once("the beginning")
            .chain(layers.iter().map(|l| text(&l["name"])))
            .map(str::to_owned)
            .collect(),
        x_label: "layers merged".into(),
        y_label: format!("{}, %", measure.what),
        series,
        ..Chart::default()
    };
    let samples = |layer: Option<&Value>| layer.and_then(|l| l["error_samples"].as_u64());
    let note = match (samples(layers.first()), samples(layers.last())) {
        (Some(0), Some(all)) if all > 0 => {
            "<p class=\"faint\">Measured before the first and after the last layer only.</p>\n".to_owned()
        }
        (Some(few), Some(all)) if few < all => format!(
            "<p class=\"faint\">Between the first and the last point figures are those of {few} samples of {all}: a step at either end may be \
             theirs, not the layer's.</p>\n"
        ),
        _ => String::new(),
    };
    section(page, &format!("{} after each layer", measure.title), &chart, &rows, &note);
}

/// What the shared pairs of each layer cost, relative to two units taken at random.
fn distance_section(page: &mut String, layers: &[Value]) {
    let mut points = Vec::new();
    let mut rows: Vec<Vec<String>> = vec![texts([
        "layer",
        "inputs",
        "samples",
        "ridge",
        "pairs",
        "lowest d",
        "median",
        "highest (the cut)",
        "cheapest left private",
        "any pair",
        "Σ d",
    ])];
    let mut drawn = String::new();
    for (i, layer) in layers.iter().enumerate() {
        let d: Vec<f64> = layer["distances"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let typical = layer["typical_distance"].as_f64().unwrap_or(0.0);
        let (Some(&low), Some(&middle), Some(&high)) = (d.first(), d.get(d.len() / 2), d.last()) else { continue };
        let all = typical.max(f64::MIN_POSITIVE);
        points.push(Point { x: i as f64 + 1.0, y: middle / all, spread: Some((low / all, high / all)) });
        let name = text(&layer["name"]);
        let apart = layer["private_distances"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        let apart: Vec<f64> = apart.collect();
        let of = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.3e}"));
        let count = |key: &str| layer[key].as_u64().map_or_else(|| "-".to_owned(), grouped);
        let ridge = layer["ridge"].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.0e}"));
        let row =
            [Some(low), Some(middle), Some(high), apart.first().copied(), Some(typical), layer["distance"].as_f64()];
        let facts = [name.to_owned(), count("inputs"), count("samples"), ridge, count("shared")];
        rows.push(facts.into_iter().chain(row.map(of)).collect());
        let _ = write!(drawn, "<tr><td>{}</td><td>{}</td></tr>", escape(name), sparkline(&d, &apart, typical));
    }
    if points.is_empty() {
        return;
    }
    let series =
        vec![Series { name: "median, from the cheapest shared pair to the cut".into(), points, dashed: false }];
    let chart = Chart {
        title: "Cost d of the shared pairs, relative to any pair".into(),
        places: std::iter::once("").chain(layers.iter().map(|l| text(&l["name"]))).map(str::to_owned).collect(),
        x_label: "layer".into(),
        y_label: "d / mean d".into(),
        mark: Some((1.0, "two units taken at random".into())),
        series,
        ..Chart::default()
    };
    let more = format!(
        "<details><summary>d of every layer's pairs, cheapest first</summary><div class=\"wide\"><table>{drawn}</table></div>\
         <p class=\"faint\">blue: pairs that are shared; orange, behind the cut: units that stay private, each with the unit it would have been cheapest to share with; the dashed line is the mean over all possible pairs</p></details>\n"
    );
    section(page, "What sharing costs in each layer", &chart, &rows, &more);
}

/// d of the pairs of one layer, cheapest first, and behind the cut that of units that stay `apart`, as a small picture.
fn sparkline(d: &[f64], apart: &[f64], typical: f64) -> String {
    let top = d.iter().chain(apart).copied().fold(typical, f64::max).max(f64::MIN_POSITIVE);
    let (width, height) = (240.0, 28.0);
    let steps = (d.len() + apart.len()).saturating_sub(1).max(1);
    let across = |i: usize| width * i as f64 / steps as f64;
    let up = |x: f64| height - (height - 2.0) * x / top - 1.0;
    let path = |values: &[f64], from: usize| {
        let points = values.iter().enumerate().map(|(i, x)| format!("{:.0},{:.1}", across(from + i), up(*x)));
        points.collect::<Vec<_>>().join(" ")
    };
    let (low, high) = (d.first().copied().unwrap_or(0.0), d.last().copied().unwrap_or(0.0));
    let cut = if apart.is_empty() { width } else { across(d.len()) - 0.5 * across(1) };
    format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\"><title>shared from {low:.2e} to {high:.2e}, any pair {typical:.2e}</title>\
         <line x1=\"0\" x2=\"{width}\" y1=\"{0:.1}\" y2=\"{0:.1}\" stroke=\"#888\" stroke-dasharray=\"3 3\"/>\
         <line x1=\"{cut:.1}\" x2=\"{cut:.1}\" y1=\"0\" y2=\"{height}\" stroke=\"#888\"/>\
         <polyline fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.5\" points=\"{1}\"/>\
         <polyline fill=\"none\" stroke=\"#d55e00\" stroke-width=\"1.5\" points=\"{2}\"/></svg>",
        up(typical),
        path(d, 0),
        path(apart, d.len()),
    )
}

/// Loss while retraining.
fn retraining_section(page: &mut String, names: &[&str], layers: &[Value]) {
    let mut rows =
        vec![std::iter::once("iteration").chain(names.iter().copied()).map(str::to_owned).collect::<Vec<_>>()];
    let mut curves: Vec<Vec<Point>> = vec![Vec::new(); names.len()];
    let mut before = 0.0;
    for layer in layers {
        for point in layer["losses"].as_array().into_iter().flatten() {
            let x = before + point["iteration"].as_f64().unwrap_or(0.0);
            let losses: Vec<Option<f64>> = names.iter().map(|n| point["loss"][*n].as_f64()).collect();
            for (curve, loss) in curves.iter_mut().zip(&losses) {
                curve.extend(loss.map(|y| Point { x, y, spread: None }));
            }
            rows.push([format!("{x:.0}")].into_iter().chain(losses.iter().map(|l| fixed(*l, 4))).collect());
        }
        before += layer["iterations"].as_f64().unwrap_or(0.0);
    }
    if curves.iter().all(Vec::is_empty) {
        return;
    }
    let series = names.iter().zip(curves).map(|(n, points)| Series { name: (*n).to_owned(), points, dashed: false });
    let chart = Chart {
        title: "Loss while retraining".into(),
        x_label: "iterations".into(),
        y_label: "loss".into(),
        series: series.collect(),
        ..Chart::default()
    };
    section(page, "Retraining", &chart, &rows, "");
}

/// Size against points lost, or without labels against agreement.
fn budget_section(page: &mut String, names: &[&str], budget: &Value) {
    let Some(all) = budget["points"].as_array() else { return };
    let measured = all.iter().any(|p| names.iter().any(|name| p["error_increase"][*name].is_number()));
    let labelled = measured && !budget["min_agreement"].is_number();
    let (figure, error, what, limit) = match labelled {
        true => ("error_increase", "standard_error", "points lost", &budget["max_error_increase"]),
        false => ("agreement", "agreement_error", "agreement, %", &budget["min_agreement"]),
    };
    let mut points: Vec<&Value> = all.iter().collect();
    points.sort_by(|a, b| a["size"].as_f64().unwrap_or(0.0).total_cmp(&b["size"].as_f64().unwrap_or(0.0)));
    let retrained = |p: &Value| p["iterations"].as_u64().unwrap_or(0) > 0;
    let any = points.iter().any(|p| retrained(p));
    let mut series = Vec::new();
    for name in names {
        for after in [false, true] {
            let own = points.iter().filter(|p| retrained(p) == after);
            let of = |p: &&&Value| {
                let y = p[figure][*name].as_f64()?;
                let spread = p[error][*name].as_f64().map(|e| (y - e, y + e));
                Some(Point { x: 100.0 * p["size"].as_f64()?, y, spread })
            };
            let points: Vec<Point> = own.filter_map(|p| of(&p)).collect();
            let name = if after { format!("{name} retrained") } else { format!("{name} merged") };
            series.extend((!points.is_empty()).then_some(Series { name, points, dashed: any && !after }));
        }
    }
    let mut rows = vec![texts(["size %", "sharing", "iterations", "chosen", "best of its size"])];
    if let Some(head) = rows.first_mut() {
        head.extend(names.iter().map(|n| format!("{n}: {what}")));
    }
    let yes = |flag: &Value| if flag.as_bool() == Some(true) { "yes".to_owned() } else { String::new() };
    for p in &points {
        let mut row = vec![
            fixed(p["size"].as_f64().map(|s| 100.0 * s), 1),
            fixed(p["sharing"].as_f64(), 3),
            p["iterations"].as_u64().unwrap_or(0).to_string(),
            yes(&p["chosen"]),
            yes(&p["pareto"]),
        ];
        row.extend(names.iter().map(|n| fixed(p[figure][*n].as_f64(), 2)));
        rows.push(row);
    }
    let chart = Chart {
        title: format!("{} against size, on held-out samples", if labelled { "Points lost" } else { "Agreement" }),
        x_label: "size, % of the separate networks".into(),
        y_label: format!("{what}, with standard errors"),
        mark: limit.as_f64().map(|limit| (limit, if labelled { "allowed" } else { "asked for" }.into())),
        series,
        ..Chart::default()
    };
    section(page, "The budget", &chart, &rows, "");
}

fn this_run(page: &mut String, run: &Value) {
    let command = run["command"].as_str().map(|c| format!("<pre>{}</pre>\n", escape(c))).unwrap_or_default();
    let memory = run["peak_memory_bytes"].as_f64().map(|b| format!(", {:.0} MiB of memory", b / 1048576.0));
    let machine = &run["machine"];
    let on = machine["system"].as_str().map(|system| {
        let threads = machine["threads"].as_u64().unwrap_or(1);
        format!(", on {system} {}, {}, {threads} threads", text(&machine["processor"]), text(&machine["vectors"]))
    });
    let _ = write!(
        page,
        "<h2>This run</h2>\n{command}<p>{} iterations of retraining, {} s{}, seed {}, mtz {}{}</p>\n</body></html>\n",
        run["iterations"].as_u64().unwrap_or(0),
        fixed(run["seconds"].as_f64(), 1),
        memory.unwrap_or_default(),
        run["seed"].as_u64().unwrap_or(0),
        escape(run["mtz"].as_str().unwrap_or(env!("CARGO_PKG_VERSION"))),
        escape(&on.unwrap_or_default()),
    );
}

/// A chart with its numbers below it.
fn section(page: &mut String, title: &str, chart: &Chart, rows: &[Vec<String>], more: &str) {
    let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"wide\">{}</div>", escape(title), chart.to_svg());
    page.push_str("<details><summary>as a table</summary>\n");
    table(page, rows);
    let _ = writeln!(page, "</details>\n{more}");
}

fn table(page: &mut String, rows: &[Vec<String>]) {
    page.push_str("<div class=\"wide\"><table>\n");
    for (i, row) in rows.iter().enumerate() {
        let cell = if i == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|text| format!("<{cell}>{}</{cell}>", escape(text))).collect();
        let _ = writeln!(page, "<tr>{cells}</tr>");
    }
    page.push_str("</table></div>\n");
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn fixed(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"))
}

/// 1 234 567
fn grouped(n: u64) -> String {
    in_threes(n, '\u{202f}')
}

/// A number with something between every three digits.
pub fn in_threes(n: u64, between: char) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(between);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_from_files_cannot_break_the_page() {
        let evil = "</title><script>alert(1)</script>\"'";
        let mut tasks = serde_json::Map::new();
        tasks.insert(evil.to_owned(), json!({ "error_before": 1.5, "error_after": 1.6, "samples": 10, "part": evil }));
        let layer = json!({
            "name": evil, "shared": 3, "owners": [{ "tasks": [evil, "b"], "units": 3 }], "error_zipped": { evil: 1.7 },
            "error_after": { evil: 1.6 }, "iterations": 2, "ridge_raised": true, "distances": [0.1, 0.2],
            "private_distances": [0.3], "typical_distance": 1.0, "losses": [{ "iteration": 2, "loss": { evil: 0.5 } }],
        });
        let budget = json!({ "missed": [evil], "points": [{ "size": 0.5, "error_increase": { evil: 0.1 } }] });
        let private = json!([{ "name": evil, "why": evil }]);
        let run = json!({ "tasks": tasks, "layers": [layer], "command": evil, "mtz": evil, "budget": budget,
                          "private": private, "warnings": [evil], "machine": { "system": evil, "vectors": evil } });
        let page = html(&run).unwrap();
        assert!(!page.contains("<script"), "{page}");
        for part in ["1.60", "flex:3", "Retraining", "The budget", "What sharing costs", "the cut"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(html(&json!({})).is_err());
    }

    /// Anything may be missing, or be something else than expected.
    #[test]
    fn odd_json_gives_a_page_or_an_error() {
        let odd = json!({ "tasks": { "a": 3 }, "layers": [null, 5, { "owners": 3, "distances": "x", "losses": [1] }],
                          "budget": { "points": [null] }, "private": [null], "seed": "x" });
        let page = html(&odd).unwrap();
        assert!(page.contains("</html>") && !page.contains("NaN"), "{page}");
    }

    #[test]
    fn fifty_layers_and_five_tasks_stay_small() {
        let names: Vec<String> = (0..5).map(|t| format!("task {t}")).collect();
        let by = |x: f64| Value::Object(names.iter().map(|n| (n.clone(), json!(x))).collect());
        let tasks = Value::Object(names.iter().map(|n| (n.clone(), json!({ "error_before": 1.0 }))).collect());
        let layers: Vec<Value> = (0..50)
            .map(|l| {
                let owners: Vec<Value> = names.iter().map(|n| json!({ "tasks": [n], "units": 7 })).collect();
                let losses: Vec<Value> = (0..50).map(|i| json!({ "iteration": i, "loss": by(0.1) })).collect();
                json!({ "name": format!("layer{l}.conv"), "owners": owners, "error_zipped": by(2.0), "error_after": by(1.5),
                        "iterations": 50, "distances": vec![0.01; 41], "typical_distance": 0.1, "losses": losses })
            })
            .collect();
        let page = html(&json!({ "tasks": tasks, "layers": layers })).unwrap();
        assert!(page.len() < 2_000_000, "{} bytes", page.len());
    }
}
