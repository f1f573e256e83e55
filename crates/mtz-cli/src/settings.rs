//! The library names settings in backticks; on the command line they are flags.

use std::borrow::Cow;

/// Settings and the flags that set them.
const FLAGS: [(&str, &str); 22] = [
    ("`batch_size`", "--batch-size"),
    ("`calibration`", "--calibration"),
    ("`checkpoint`", "--checkpoint"),
    ("`classes`", "--classes"),
    ("`common_input`", "--common-input"),
    ("`data`", "--data"),
    ("`element`", "--dtype"),
    ("`global`", "--global"),
    ("`iterations`", "--retrain"),
    ("`label`", "--label"),
    ("`mean`", "--mean"),
    ("`memory`", "--memory"),
    ("`method`", "--method"),
    ("`min_agreement`", "--min-agreement"),
    ("`rate`", "--lr"),
    ("`raw`", "--raw"),
    ("`resize`", "--resize"),
    ("`scale`", "--scale"),
    ("`share`", "--share"),
    ("`shift`", "--shift"),
    ("`skip_bad`", "--skip-bad"),
    ("`std`", "--std"),
];

/// A message of the library as one that can be typed.
pub fn as_flags(text: &str) -> Cow<'_, str> {
    if !text.contains('`') {
        return Cow::Borrowed(text);
    }
    let replace = |text: String, (setting, flag): &(&str, &str)| text.replace(setting, flag);
    Cow::Owned(FLAGS.iter().fold(text.to_owned(), replace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_flags() {
        assert_eq!(
            as_flags("allow more `memory`, or use `batch_size` 8"),
            "allow more --memory, or use --batch-size 8"
        );
        assert_eq!(as_flags("there is no task `age`"), "there is no task `age`");
        let warning = mtz::report::near_chance("a `task`", 89.0, 10).unwrap();
        assert!(as_flags(&warning).ends_with("(--mean, --std, --scale, --raw, --label)"));
    }
}
