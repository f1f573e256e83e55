//! The modules of the library stand in the order of the flow: none may use one that is declared after it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The first names of the paths after `prefix`: one, or those of a group in braces.
fn names_after<'t>(text: &'t str, prefix: &str) -> Vec<&'t str> {
    let name = |text: &'t str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        &text[..end]
    };
    let mut names = Vec::new();
    for (at, _) in text.match_indices(prefix) {
        // `crate::` is part of no longer word.
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let (mut depth, mut begin) = (0, 0);
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    names.push(name(group[begin..i].trim_start()));
                    begin = i + 1;
                }
                _ => {}
            }
            if c == '}' && depth == 0 && begin == i + 1 {
                break;
            }
        }
    }
    names
}

/// What a file in the folder of sources uses of the crate's modules; `depth`: how many folders it is inside of.
fn used(text: &str, depth: usize) -> Vec<&str> {
    let up = "super::".repeat(depth + 1);
    [names_after(text, "crate::"), names_after(text, &up)].concat()
}

#[test]
fn all_forms_of_paths_are_seen() {
    let text = "use crate::{a, b::{c, d}, e::f};\nuse crate::g::h;\nlet x = crate::i::j();\nuse super::super::{k, \
    l::m};\nuse mtz::n;";
    assert_eq!(used(text, 1), ["a", "b", "e", "g", "i", "k", "l"]);
    assert_eq!(used("use super::a::b;", 0), ["a"]);
    assert!(used("use super::a::b;", 1).is_empty());
}

#[test]
fn no_module_uses_a_later_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(root.join("lib.rs")).unwrap();
    let order: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert!(order.len() > 8, "modules: {order:?}");
    let place = |name: &str| order.iter().position(|m| *m == name);
    let mut files = Vec::new();
    sources(&root, &mut files);
    for file in files {
        let inside = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let Some(own) = place(module) else { continue };
        let depth = inside.matches('/').count() - usize::from(inside.ends_with("/mod.rs"));
        let text = std::fs::read_to_string(&file).unwrap();
        let code: String =
            text.lines().filter(|l| !l.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
        for name in used(&code, depth) {
            if let Some(other) = place(name) {
                assert!(other <= own, "{inside}: {module} uses {name}, which comes later");
            }
        }
    }
}
