//! A zip to look at: one HTML page made from the JSON of a run, with nothing to load from elsewhere.
//!
//! Layer and task names are arbitrary strings from files; all text goes through [`escape`].

use crate::chart::{Chart, Point, Series, escape};
use crate::error::{Error, Result};
use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--faint:#777;--back:#fff;--line:#8884;--own:#bbb;--shared:#009e73}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--faint:#999;--back:#181818;--own:#666}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:56rem;margin:0 auto;padding:1rem}\
table{border-collapse:collapse;display:block;overflow-x:auto}th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}.bar{display:flex;height:1.3rem;margin:.1rem 0;overflow:hidden;border-radius:3px}\
.bar span{overflow:hidden;white-space:nowrap;font-size:.75rem;padding:0 .3rem;border-right:1px solid var(--back);background:var(--own);color:#000}\
.bar span.shared{background:var(--shared);color:#fff}.faint{color:var(--faint)}";

/// Renders what `mtz zip --json` printed.
pub fn html(run: &Value) -> Result<String> {
    let wrong = || Error::data("this is not the JSON of a zip").hint("mtz zip --json > run.json makes one");
    let tasks = run["tasks"].as_object().ok_or_else(wrong)?;
    let layers = run["layers"].as_array().ok_or_else(wrong)?;
    let names: Vec<&String> = tasks.keys().collect();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>mtz: {title}</title><style>{STYLE}</style></head><body>\n<h1>{title} in one</h1>\n",
        title = escape(&names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")),
    );
    headline(&mut page, run, tasks);
    page.push_str("<h2>Who owns which units</h2>\n");
    for layer in layers {
        bar(&mut page, layer);
    }
    page.push_str("<p class=\"faint\">green: shared, grey: one task's own</p>\n<h2>Error after each layer</h2>\n");
    page.push_str(&error_chart(&names, run, layers).to_svg());
    table(&mut page, &names, layers);
    let command = run["command"].as_str().map(|c| format!("<pre>{}</pre>", escape(c))).unwrap_or_default();
    let _ = write!(
        page,
        "<h2>This run</h2>\n{command}<p>{} iterations of retraining, {:.1} s, seed {}, mtz {}</p>\n</body></html>\n",
        run["iterations"],
        run["seconds"].as_f64().unwrap_or(0.0),
        run["seed"],
        env!("CARGO_PKG_VERSION")
    );
    Ok(page)
}

fn headline(page: &mut String, run: &Value, tasks: &serde_json::Map<String, Value>) {
    page.push_str("<table><tr><th>task</th><th>error before %</th><th>after the merge %</th><th>at the end %</th><th>samples</th></tr>\n");
    for (name, task) in tasks {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            percent(&task["error_before"]),
            percent(&task["error_zipped"]),
            percent(&task["error_after"]),
            task["samples"].as_u64().unwrap_or(0)
        );
    }
    let parameters = &run["parameters"];
    let (before, after) = (parameters["before"].as_u64().unwrap_or(0), parameters["after"].as_u64().unwrap_or(0));
    let _ = writeln!(
        page,
        "</table>\n<p>Parameters: {before} → {after} ({:.1} %), {} of them shared.</p>",
        100.0 * after as f64 / before.max(1) as f64,
        parameters["shared"].as_u64().unwrap_or(0)
    );
}

/// Private and shared units of a layer as parts of a bar.
fn bar(page: &mut String, layer: &Value) {
    let _ = writeln!(page, "<div>{}</div><div class=\"bar\">", escape(layer["name"].as_str().unwrap_or("")));
    for part in layer["owners"].as_array().into_iter().flatten() {
        let tasks: Vec<&str> = part["tasks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (count, label) = (part["units"].as_u64().unwrap_or(0), escape(&tasks.join(" + ")));
        let class = if tasks.len() > 1 { " class=\"shared\"" } else { "" };
        let _ =
            write!(page, "<span{class} style=\"flex:{count}\" title=\"{label}: {count} units\">{count} {label}</span>");
    }
    page.push_str("</div>\n");
}

fn error_chart(names: &[&String], run: &Value, layers: &[Value]) -> Chart {
    let series = names.iter().map(|name| {
        let before = run["tasks"][name.as_str()]["error_before"].as_f64();
        let after = layers.iter().map(|l| l["error_after"][name.as_str()].as_f64());
        let points = std::iter::once(before).chain(after).enumerate();
        let points = points.filter_map(|(x, y)| y.map(|y| Point { x: x as f64, y, spread: None })).collect();
        Series { name: (*name).clone(), points }
    });
    Chart {
        title: "Error of each task".into(),
        x_label: "layers merged".into(),
        y_label: "error, %".into(),
        series: series.collect(),
        ..Chart::default()
    }
}

fn table(page: &mut String, names: &[&String], layers: &[Value]) {
    page.push_str("<table><tr><th>layer</th><th>shared</th><th>Σ d</th><th>ridge</th>");
    for name in names {
        let _ = write!(page, "<th>{0} merged %</th><th>{0} after %</th>", escape(name));
    }
    page.push_str("<th>iterations</th><th>seconds</th></tr>\n");
    for layer in layers {
        let raised = if layer["ridge_raised"].as_bool() == Some(true) { " (raised)" } else { "" };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{:.4}</td><td>{:.0e}{raised}</td>",
            escape(layer["name"].as_str().unwrap_or("")),
            layer["shared"].as_u64().unwrap_or(0),
            layer["distance"].as_f64().unwrap_or(0.0),
            layer["ridge"].as_f64().unwrap_or(0.0)
        );
        for name in names {
            let of = |key: &str| percent(&layer[key][name.as_str()]);
            let _ = write!(page, "<td>{}</td><td>{}</td>", of("error_zipped"), of("error_after"));
        }
        let (iterations, seconds) =
            (layer["iterations"].as_u64().unwrap_or(0), layer["seconds"].as_f64().unwrap_or(0.0));
        let _ = writeln!(page, "<td>{iterations}</td><td>{seconds:.1}</td></tr>");
    }
    page.push_str("</table>\n");
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_from_files_cannot_break_the_page() {
        let evil = "</title><script>alert(1)</script>\"'";
        let mut tasks = serde_json::Map::new();
        tasks.insert(evil.to_owned(), json!({ "error_before": 1.5, "error_after": 1.6, "samples": 10 }));
        let layer = json!({ "name": evil, "shared": 3, "owners": [{ "tasks": [evil, "b"], "units": 3 }],
                            "error_after": { evil: 1.6 } });
        let page = html(&json!({ "tasks": tasks, "layers": [layer], "command": evil })).unwrap();
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("1.60") && page.contains("flex:3"));
        assert!(html(&json!({})).is_err());
    }
}
